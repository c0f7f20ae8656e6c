// Kernels and host work that last as long as they are told, whatever the clock of the GPU is.
#include <time.h>

__global__ void spin_kernel(long long ns) {
  unsigned long long began, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(began));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while ((long long)(now - began) < ns);
}

extern "C" {
int use(int device) { return cudaSetDevice(device); }

// The grid tells the kernels of a program apart.
int spin(int grid, long long ns, cudaStream_t stream) {
  spin_kernel<<<grid, 1, 0, stream>>>(ns);
  return cudaGetLastError();
}

void work(long long ns) {
  timespec began, now;
  clock_gettime(CLOCK_MONOTONIC, &began);
  do {
    clock_gettime(CLOCK_MONOTONIC, &now);
  } while ((now.tv_sec - began.tv_sec) * 1000000000LL + now.tv_nsec - began.tv_nsec < ns);
}
}
