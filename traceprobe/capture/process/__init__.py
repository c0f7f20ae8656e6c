"""The processes of a program: started, told what to do, heard from, and cleaned up after."""
