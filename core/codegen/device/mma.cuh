// Tensor core products and the loads that feed them (PTX ISA, "Matrix multiply-accumulate operation using mma
// instruction"). All 32 lanes take part. With lane = 4 * group + pair, group 0..7, pair 0..3:
//   f16, bf16 (m16n8k16), two elements a register, lower column (A) or row (B) in the low half:
//     a[0] A[group][2 pair ..]      a[1] A[group + 8][2 pair ..]    a[2], a[3] the same at columns + 8
//     b[0] B[2 pair ..][group]      b[1] B[2 pair + 8 ..][group]
//   tf32 (m16n8k8), one element a register:
//     a[0] A[group][pair]   a[1] A[group + 8][pair]   a[2], a[3] the same at column + 4
//     b[0] B[pair][group]   b[1] B[pair + 4][group]
//   both: d[0], d[1] D[group][2 pair], [2 pair + 1]   d[2], d[3] the same at row group + 8

// mma.sync.aligned.m16n8k16.row.col.f32.T.T.f32 (sm_80): d += A * B with f32 accumulators.
template <class T>
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]);

template <>
__device__ __forceinline__ void mma_m16n8k16<f16>(float (&d)[4], const unsigned (&a)[4],
                                                  const unsigned (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, "
      "%1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
template <>
__device__ __forceinline__ void mma_m16n8k16<bf16>(float (&d)[4], const unsigned (&a)[4],
                                                   const unsigned (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, "
      "%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 (sm_80): operands are made by to_tf32.
__device__ __forceinline__ void mma_m16n8k8_tf32(float (&d)[4], const unsigned (&a)[4],
                                                 const unsigned (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, "
      "%1, %2, "
      "%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// The 32-bit shared-window address that shared-memory instructions take.
__device__ __forceinline__ unsigned shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

// ldmatrix.sync.aligned.m8n8.xN.shared.b16: kCount (1, 2, 4) matrices of 8 rows of 16 bytes. Lane 8 i + j
// gives the 16-byte aligned shared address of row j of matrix i; lanes from 8 kCount on are not looked at but
// must pass a valid one. Register i of a lane gets elements 2 pair, 2 pair + 1 of row `group` of matrix i.
template <int kCount>
__device__ __forceinline__ void ldmatrix(unsigned (&r)[kCount], const void* row) {
  static_assert(kCount == 1 || kCount == 2 || kCount == 4, "ldmatrix loads 1, 2 or 4 matrices");
  if constexpr (kCount == 1) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
                 : "=r"(r[0])
                 : "r"(shared_address(row))
                 : "memory");
  } else if constexpr (kCount == 2) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(shared_address(row))
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
  }
}

// stmatrix.sync.aligned.m8n8.xN.shared.b16 (sm_90): the way back. Lane 8 i + j gives the address of row j of matrix i, of which
// a lane has elements 2 pair, 2 pair + 1 of row `group` in register i; with .trans, of column `group`.
template <int kCount, bool kTrans>
__device__ __forceinline__ void stmatrix(void* row, const unsigned (&r)[kCount]) {
  static_assert(kCount == 1 || kCount == 2 || kCount == 4, "stmatrix stores 1, 2 or 4 matrices");
  if constexpr (kCount == 1) {
    if constexpr (kTrans)
      asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};" ::"r"(shared_address(row)), "r"(r[0])
                   : "memory");
    else
      asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" ::"r"(shared_address(row)), "r"(r[0])
                   : "memory");
  } else if constexpr (kCount == 2) {
    if constexpr (kTrans)
      asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(shared_address(row)),
                   "r"(r[0]), "r"(r[1])
                   : "memory");
    else
      asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(shared_address(row)), "r"(r[0]),
                   "r"(r[1])
                   : "memory");
  } else {
    if constexpr (kTrans)
      asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
                   "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                   : "memory");
    else
      asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
                   "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                   : "memory");
  }
}

// ldmatrix with .trans: register i gets elements 2 pair, 2 pair + 1 of column `group` of matrix i.
template <int kCount>
__device__ __forceinline__ void ldmatrix_trans(unsigned (&r)[kCount], const void* row) {
  static_assert(kCount == 1 || kCount == 2 || kCount == 4, "ldmatrix loads 1, 2 or 4 matrices");
  if constexpr (kCount == 1) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
                 : "=r"(r[0])
                 : "r"(shared_address(row))
                 : "memory");
  } else if constexpr (kCount == 2) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(shared_address(row))
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
  }
}
