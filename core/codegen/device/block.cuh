// What kernels of block graphs are made of: tiles in registers, two 16-bit elements a word where they come
// from global memory or go to tensor cores. This file is also compiled by the emulator's host compiler.

// Element i of words that hold two each.
template <class T>
__device__ __forceinline__ T half_at(const unsigned* words, int i) {
  return T{static_cast<unsigned short>(words[i / 2] >> (i % 2 * 16))};
}

// One load of kCount elements, or zeros. `kStreaming`: nobody else reads them.
template <class T, int kCount, bool kStreaming, class Register>
__device__ __forceinline__ void load_elements(Register* to, const T* from, bool inside) {
  constexpr int kRegisters = kCount * sizeof(T) / sizeof(Register);
  Vector<Register, kRegisters> loaded = {};
  if (inside) loaded = load_vector_now<Register, kRegisters, kStreaming>(from);
#pragma unroll
  for (int i = 0; i < kRegisters; ++i) to[i] = loaded[i];
}
// The same of what a kernel in front wrote.
template <class T, int kCount, bool kStreaming, class Register>
__device__ __forceinline__ void load_written_elements(Register* to, const T* from, bool inside) {
  constexpr int kRegisters = kCount * sizeof(T) / sizeof(Register);
  Vector<Register, kRegisters> loaded = {};
  if (inside) loaded = load_vector_written<Register, kRegisters, kStreaming>(from);
#pragma unroll
  for (int i = 0; i < kRegisters; ++i) to[i] = loaded[i];
}

// The same from shared memory.
template <class T, int kCount, class Register>
__device__ __forceinline__ void read_elements(Register* to, const T* from, bool inside) {
  constexpr int kRegisters = kCount * sizeof(T) / sizeof(Register);
  Vector<Register, kRegisters> loaded = {};
  if (inside) loaded = load_vector<Register, kRegisters>(from);
#pragma unroll
  for (int i = 0; i < kRegisters; ++i) to[i] = loaded[i];
}

// Where element `at` of a tile lies that TMA has swizzled: bits kMask are xored with those three
// above them. And the same of a sum of what the thread decides, already swizzled, and what the register does: no bit is in both.
template <int kMask>
__device__ __forceinline__ int swizzled(int at) {
  return at ^ (at >> 3 & kMask);
}
template <int kMask>
__device__ __forceinline__ int swizzled_sum(int thread, int registers) {
  const int at = swizzled<kMask>(registers);
  return (thread ^ (at & kMask)) + (at & ~kMask);
}

// Elements of a tile in shared memory, and of one that is what `combine` makes of kCopies tiles which lie
// `distance` elements apart.
template <class T, int kCount>
__device__ __forceinline__ void get_elements(T* to, const T* from) {
  const Vector<T, kCount> part = load_vector<T, kCount>(from);
#pragma unroll
  for (int i = 0; i < kCount; ++i) to[i] = part[i];
}
template <class T, int kCount, int kCopies, class Combine>
__device__ __forceinline__ void get_elements(T* to, const T* from, int distance, Combine combine) {
  get_elements<T, kCount>(to, from);
#pragma unroll
  for (int copy = 1; copy < kCopies; ++copy) {
    const Vector<T, kCount> part = load_vector<T, kCount>(from + copy * distance);
#pragma unroll
    for (int i = 0; i < kCount; ++i) to[i] = combine(to[i], part[i]);
  }
}

// kCount elements of an array from `from` on, as an array of their own. Nothing is copied: copies of registers
// go away, but cost the compiler more time than anything else that an mma needs.
template <int kCount, class T>
__device__ __forceinline__ T (&part_of(T* from))[kCount] {
  return *reinterpret_cast<T(*)[kCount]>(from);
}

// ldmatrix into registers that are part of an array.
template <int kCount, class T>
__device__ __forceinline__ void ldmatrix_at(unsigned* to, const T* row) {
  ldmatrix<kCount>(part_of<kCount>(to), row);
}
template <int kCount, class T>
__device__ __forceinline__ void ldmatrix_trans_at(unsigned* to, const T* row) {
  ldmatrix_trans<kCount>(part_of<kCount>(to), row);
}

// stmatrix of numbers that are pairs in words.
template <class T, int kCount>
__device__ __forceinline__ void stmatrix_at(void* row, const Vector<T, kCount>& numbers) {
  stmatrix<kCount / 2, false>(row, bit_cast<Vector<unsigned, kCount / 2>>(numbers).items);
}
template <class T, int kCount>
__device__ __forceinline__ void stmatrix_trans_at(void* row, const Vector<T, kCount>& numbers) {
  stmatrix<kCount / 2, true>(row, bit_cast<Vector<unsigned, kCount / 2>>(numbers).items);
}

// Words that hold f32 become the tf32 nearest to it.
template <int kCount>
__device__ __forceinline__ void round_to_tf32(unsigned (&words)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) words[i] = to_tf32(__uint_as_float(words[i]));
}

// mma.m16n8k16 of 16-bit elements, m16n8k8 of tf32 if T is float: either takes eight words of the inner
// dimension.
template <class T>
__device__ __forceinline__ void mma_of_words(float (&sums)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  if constexpr (sizeof(T) == 4)
    mma_m16n8k8_tf32(sums, a, b);
  else
    mma_m16n8k16<T>(sums, a, b);
}

// One of them on parts of arrays: four sums, four words of the left operand (two if kLowRows: its rows 8 to 15
// are those from 0 again), two of the right one.
template <class T, bool kLowRows>
__device__ __forceinline__ void mma_fragment(float* sums, const unsigned* a, const unsigned* b) {
  if constexpr (kLowRows) {
    const unsigned left[4] = {a[0], a[0], a[1], a[1]};
    mma_of_words<T>(part_of<4>(sums), left, part_of<2>(b));
  } else {
    mma_of_words<T>(part_of<4>(sums), part_of<4>(a), part_of<2>(b));
  }
}

// By how much sums relative to `before` shrink when they become relative to `now` >= before: nothing was
// summed yet where both are -infinity.
__device__ __forceinline__ float shift_factor(float before, float now) {
  const float power = exp_fast(before - now);
  return before == now ? 1.0f : power;
}

// kCount elements of a tile in the shared memory of block `rank` of the cluster, where one's own begin at `own`.
template <class T, int kCount>
__device__ __forceinline__ void load_cluster_elements(Vector<T, kCount>& to, const T* own, int rank) {
  to = load_cluster<T, kCount>(own, rank);
}

// What blocks of a cluster have summed relative to maxima of their own, which lie at `from` in each: by how
// much that of each shrinks when it becomes relative to the maximum of all.
template <int kBlocks>
__device__ __forceinline__ void cluster_factors(float* factors, const float* from, bool inside) {
  float top = -infinity();
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
    factors[block] = inside ? load_cluster<float, 1>(from, block)[0] : 0.0f;
    top = max_nan(top, factors[block]);
  }
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) factors[block] = shift_factor(factors[block], top);
}
