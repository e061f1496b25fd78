// Kernels that begin before the one in front of them in the stream has ended (CUDA C++ Programming Guide,
// "Programmatic Dependent Launch and Synchronization"; Launch::overlaps in core/base/plan.h).

// Until the kernel in front has ended and all that it wrote can be seen. Every block of a kernel that overlaps does
// this before it touches memory that an earlier one has written or read, so that its own end says the same of all.
__device__ __forceinline__ void grid_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
// This block does not mind if the next kernel begins: it may when all blocks have said so or ended.
__device__ __forceinline__ void grid_launch_dependents() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
