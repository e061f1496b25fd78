/* What fused.c and fused.cc share: numbers in half precision, reference results, and the few calls of the CUDA driver that a program needs for its
 * buffers. The driver is loaded at run time, so that the examples also build where there is no CUDA. */
#ifndef FUSED_H
#define FUSED_H

#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of normal numbers; smaller ones become 0. */
static inline uint16_t to_half(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  const int exponent = (int)(bits >> 23 & 255) - 112;
  if (exponent <= 0) return 0;
  return (uint16_t)((bits >> 16 & 0x8000) + ((uint32_t)exponent << 10) + (bits >> 13 & 0x3ff) + (bits >> 12 & 1));
}
static inline double from_half(uint16_t half) {
  const int exponent = half >> 10 & 31, mantissa = half & 0x3ff;
  const double size = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
  return half & 0x8000 ? -size : size;
}

static inline void fill(uint16_t* to, size_t count, float scale) {
  static uint32_t state = 1;
  for (size_t i = 0; i < count; ++i) {
    state = state * 1664525 + 1013904223;
    to[i] = to_half(scale * ((float)(state >> 8) / 8388608.0f - 1));
  }
}

/* c[m][n] += a[m][k] b, where b is [k][n], or [n][k] if `transposed`. */
static inline void multiply(const double* a, const double* b, double* c, int m, int k, int n, int transposed) {
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j)
      for (int l = 0; l < k; ++l) c[i * n + j] += a[i * k + l] * (transposed ? b[j * k + l] : b[l * n + j]);
}

/* Prints how far `got` is from `want`; 0 if that is within what half precision explains. */
static inline int compare(const char* what, const uint16_t* got, const double* want, size_t count) {
  double error = 0, size = 0;
  for (size_t i = 0; i < count; ++i) {
    const double difference = from_half(got[i]) - want[i];
    error += difference * difference, size += want[i] * want[i];
  }
  error = sqrt(error / size);
  printf("%s on the GPU: relative error %.2g, %s\n", what, error, error < 2e-3 ? "ok" : "WRONG");
  return !(error < 2e-3);
}

/* Without a GPU: the program `quern` runs the same graph on its emulator, and checks it. */
static inline int run_emulated(const char* text) {
  FILE* quern = popen("quern run - --emulate --target sm_90a", "w");
  if (!quern) return 1;
  fputs(text, quern);
  return pclose(quern) != 0;
}

typedef struct {
  int (*cuInit)(unsigned);
  int (*cuDeviceGet)(int*, int);
  int (*cuDevicePrimaryCtxRetain)(void**, int);
  int (*cuCtxSetCurrent)(void*);
  int (*cuMemAlloc)(uint64_t*, size_t);
  int (*cuMemFree)(uint64_t);
  int (*cuMemcpyHtoD)(uint64_t, const void*, size_t);
  int (*cuMemcpyDtoH)(void*, uint64_t, size_t); /* after all that was launched on the default stream */
} cuda;

static inline void* find(void* library, const char* name) {
  void* function = dlsym(library, name);
  if (!function) fprintf(stderr, "libcuda has no %s\n", name), exit(1);
  return function;
}

/* A current context on device 0. 0 if there is no GPU. */
static inline int cuda_open(cuda* driver) {
  const char* named = getenv("QUERN_LIBCUDA");
  void* library = dlopen(named ? named : "libcuda.so.1", RTLD_NOW);
  void* context;
  int device;
  if (!library) return 0;
  *(void**)&driver->cuInit = find(library, "cuInit");
  *(void**)&driver->cuDeviceGet = find(library, "cuDeviceGet");
  *(void**)&driver->cuDevicePrimaryCtxRetain = find(library, "cuDevicePrimaryCtxRetain");
  *(void**)&driver->cuCtxSetCurrent = find(library, "cuCtxSetCurrent");
  *(void**)&driver->cuMemAlloc = find(library, "cuMemAlloc_v2");
  *(void**)&driver->cuMemFree = find(library, "cuMemFree_v2");
  *(void**)&driver->cuMemcpyHtoD = find(library, "cuMemcpyHtoD_v2");
  *(void**)&driver->cuMemcpyDtoH = find(library, "cuMemcpyDtoH_v2");
  return !driver->cuInit(0) && !driver->cuDeviceGet(&device, 0) && !driver->cuDevicePrimaryCtxRetain(&context, device) &&
         !driver->cuCtxSetCurrent(context);
}

#endif
