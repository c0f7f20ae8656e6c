/* Stands for NVIDIA's management library where there is no GPU: one GPU whose clock falls. */
#include <string.h>
static int readings = 0;
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = &readings;
    return index == 0 ? 0 : 2;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    *device = &readings;
    return strcmp(uuid, "GPU-12345678") == 0 ? 0 : 6;
}
int nvmlDeviceGetClockInfo(void *device, unsigned type, unsigned *mhz) {
    if (type == 1) *mhz = readings++ < 2 ? 1980 : 1200;
    else if (type == 2) *mhz = 3201;
    else return 2;
    return 0;
}
int nvmlDeviceGetMaxClockInfo(void *device, unsigned type, unsigned *mhz) {
    *mhz = 1980;
    return 0;
}
int nvmlDeviceGetPowerUsage(void *device, unsigned *mw) { *mw = 698500; return 0; }
int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *mw) { *mw = 700000; return 0; }
int nvmlDeviceGetTemperature(void *device, unsigned sensor, unsigned *celsius) { return 3; }
int nvmlDeviceGetUtilizationRates(void *device, unsigned *rates) {
    rates[0] = 97;
    rates[1] = 40;
    return 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *mask) {
    *mask = readings > 2 ? 0x4 | 0x40 : 0;
    return 0;
}
