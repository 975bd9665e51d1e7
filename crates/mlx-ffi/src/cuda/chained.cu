// Programmatic dependent launch: kernels that are repeated as a chain may overlap: the next one begins while this one still runs, and
// waits before it touches what others make. So each of them has to wait at some place. Elsewhere neither
// does anything.
__device__ __forceinline__ void let_next_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
__device__ __forceinline__ void wait_for_last() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
