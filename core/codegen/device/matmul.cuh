// Block tiles of matrix products: MmaTile on tensor cores for f16 and bf16, FmaTile for f32, SimtTile in f32 or
// i32 for everything else. Each has multiply(shared, a, b, row, column), which all threads of the block call once
// with kSharedBytes of shared memory, and which returns the sums of the tile at (row, column) there: kRows
// rows that are kPitch apart. Every thread may read all of them. (From registers the rest of the kernel would
// be unrolled over what a thread holds, and slow to compile.) This file is also compiled by the emulator's
// host compiler.

// Element (row, column) of a matrix is data[row * row_stride + column * column_stride].
template <class T>
struct StridedMatrix {
  const T* data;
  long long rows, columns, row_stride, column_stride;
};

// Copies kOuter x kInner elements from `source` to shared memory, in chunks of kVector along the inner
// dimension, by cp.async if these have 4 bytes or more; zeros beyond outer_left and inner_left, which are multiples of
// kVector like all offsets.
template <int kOuter, int kInner, int kPitch, int kThreads, int kVector, class T>
__device__ __forceinline__ void copy_tile(T* tile, const T* source, long long outer_stride,
                                          long long inner_stride, long long outer_left,
                                          long long inner_left) {
  constexpr int kChunks = kInner / kVector;
  static_assert(kThreads % kChunks == 0, "every thread keeps to its chunk of the rows");
  const int inner = int(threadIdx.x) % kChunks * kVector;
#pragma unroll kVector * sizeof(T) >= 4 ? 1 : 4
  for (int outer = int(threadIdx.x) / kChunks; outer < kOuter; outer += kThreads / kChunks) {
    const bool inside = outer < outer_left && inner < inner_left;
    const T* from = inside ? source + outer * outer_stride + inner * inner_stride : source;
    T* to = tile + outer * kPitch + inner;
    if constexpr (kVector * sizeof(T) >= 4) {
      cp_async<kVector * sizeof(T)>(to, from, inside ? int(kVector * sizeof(T)) : 0);
    } else {
      *to = inside ? *from : T{};
    }
  }
}

// How a tile of an operand lies in shared memory: kOuter rows of kInner elements, and 16 bytes between them,
// so that the 8 rows of an ldmatrix lie in different banks. kColumnsInner: a row of the tile is a row of the
// matrix, else a column of it.
template <class T, int kRows, int kColumns, int kThreads, int kVector, bool kColumnsInner>
struct OperandTile {
  static constexpr int kOuter = kColumnsInner ? kRows : kColumns, kInner = kColumnsInner ? kColumns : kRows;
  static constexpr int kPitch = kInner + 8, kElements = kOuter * kPitch;
  static __device__ __forceinline__ void copy(T* tile, const StridedMatrix<T>& matrix, long long row,
                                              long long column) {
    const T* source = matrix.data + row * matrix.row_stride + column * matrix.column_stride;
    const long long rows = matrix.rows - row, columns = matrix.columns - column;
    if constexpr (kColumnsInner)
      copy_tile<kOuter, kInner, kPitch, kThreads, kVector>(tile, source, matrix.row_stride,
                                                           matrix.column_stride, rows, columns);
    else
      copy_tile<kOuter, kInner, kPitch, kThreads, kVector>(tile, source, matrix.column_stride,
                                                           matrix.row_stride, columns, rows);
  }
  // The 16 x 16 elements from (row, column), as four 8 x 8 matrices: the first two are one below the other if
  // kDown, else side by side. Each comes transposed if kTransposed, counted from how the matrix is.
  template <bool kDown, bool kTransposed>
  static __device__ __forceinline__ void load(unsigned (&r)[4], const T* tile, int row, int column) {
    const int lane = lane_index(), matrix = lane / 8;
    const int down = kDown ? matrix % 2 : matrix / 2, right = kDown ? matrix / 2 : matrix % 2;
    row += 8 * down;
    column += 8 * right;
    const T* at =
        kColumnsInner ? tile + (row + lane % 8) * kPitch + column : tile + (column + lane % 8) * kPitch + row;
    if constexpr (kColumnsInner != kTransposed)
      ldmatrix<4>(r, at);
    else
      ldmatrix_trans<4>(r, at);
  }
};

template <class T, int kRows, int kColumns, int kDepth, int kWarpRows, int kWarpColumns, int kStages,
          int kVectorA, bool kInnerA, int kVectorB, bool kInnerB>
struct MmaTile {
  static constexpr int kThreads = 32 * kWarpRows * kWarpColumns;
  using A = OperandTile<T, kRows, kDepth, kThreads, kVectorA, kInnerA>;
  using B = OperandTile<T, kDepth, kColumns, kThreads, kVectorB, kInnerB>;
  static constexpr int kPitch =
      kColumns + 8;  // rows of sums 8 banks apart: no conflicts between the rows of a fragment
  static constexpr int kOperandBytes = kStages * (A::kElements + B::kElements) * int(sizeof(T));
  static constexpr int kSumBytes = kRows * kPitch * int(sizeof(float));
  static constexpr int kSharedBytes = kOperandBytes > kSumBytes ? kOperandBytes : kSumBytes;
  // Of one warp: m16n8 pieces, down and across; two of these across are loaded at once.
  static constexpr int kHeight = kRows / kWarpRows, kWidth = kColumns / kWarpColumns;
  static constexpr int kDown = kHeight / 16, kAcross = kWidth / 8;
  float sums[kDown][kAcross][4] = {};

  __device__ __forceinline__ int first_row() const { return int(threadIdx.x) / 32 / kWarpColumns * kHeight; }
  __device__ __forceinline__ int first_column() const {
    return int(threadIdx.x) / 32 % kWarpColumns * kWidth;
  }

  static __device__ __forceinline__ float* multiply(void* shared, const StridedMatrix<T>& a,
                                                          const StridedMatrix<T>& b, long long row,
                                                          long long column) {
    MmaTile tile;
    tile.run(static_cast<T*>(shared), a, b, row, column);
    __syncthreads();
    tile.store(static_cast<float*>(shared));
    __syncthreads();
    return static_cast<float*>(shared);
  }

  __device__ __forceinline__ void store(float* shared) const {
    float* to = shared + (first_row() + lane_index() / 4) * kPitch + first_column() + lane_index() % 4 * 2;
#pragma unroll
    for (int i = 0; i < kDown; ++i)
#pragma unroll
      for (int j = 0; j < kAcross; ++j) {
        store_vector<float, 2>(to + 16 * i * kPitch + 8 * j, {sums[i][j][0], sums[i][j][1]});
        store_vector<float, 2>(to + (16 * i + 8) * kPitch + 8 * j, {sums[i][j][2], sums[i][j][3]});
      }
  }

  __device__ __forceinline__ void run(T* shared, const StridedMatrix<T>& a, const StridedMatrix<T>& b,
                                      long long row, long long column) {
    const int steps = int((a.columns + kDepth - 1) / kDepth);
    constexpr int kStage = A::kElements + B::kElements, kAhead = kStages - 1;
    // Steps below 0 only fetch. The barrier: what this step reads has come, and nobody reads any more what
    // the fetch overwrites.
#pragma unroll 1
    for (int step = -kAhead; step < steps; ++step) {
      cp_async_wait<kAhead - 1>();
      __syncthreads();
      if (const int next = step + kAhead; next < steps) {
        T* stage = shared + next % kStages * kStage;
        A::copy(stage, a, row, static_cast<long long>(next) * kDepth);
        B::copy(stage + A::kElements, b, static_cast<long long>(next) * kDepth, column);
      }
      cp_async_commit();
      if (step >= 0) accumulate(shared + step % kStages * kStage);
    }
    cp_async_wait<0>();
  }

  __device__ __forceinline__ void accumulate(const T* stage) {
#pragma unroll
    for (int k = 0; k < kDepth; k += 16) {
      unsigned a[kDown][4];
#pragma unroll
      for (int i = 0; i < kDown; ++i) A::template load<true, false>(a[i], stage, first_row() + 16 * i, k);
#pragma unroll
      for (int j = 0; j < kAcross; j += 2) {
        unsigned b[4];
        B::template load<true, true>(b, stage + A::kElements, k, first_column() + 8 * j);
        const unsigned left[2] = {b[0], b[1]}, right[2] = {b[2], b[3]};
#pragma unroll
        for (int i = 0; i < kDown; ++i) {
          mma_m16n8k16<T>(sums[i][j], a[i], left);
          mma_m16n8k16<T>(sums[i][j + 1], a[i], right);
        }
      }
    }
  }
};

template <class T>
__device__ __forceinline__ void convert_element(float& to, T from) {
  to = to_float(from);
}
__device__ __forceinline__ void convert_element(int& to, int from) { to = from; }
__device__ __forceinline__ void convert_element(int& to, bool from) { to = from; }
__device__ __forceinline__ float multiply_add(float a, float b, float sum) { return sum + a * b; }
__device__ __forceinline__ int multiply_add(int a, int b, int sum) { return wrap_add(sum, wrap_mul(a, b)); }

// Sum is float or int; a thread has kDown x 4 sums, in rows that are kRows / kDown apart.
template <class Sum, int kRows, int kColumns, int kDepth, int kThreads>
struct SimtTile {
  static constexpr int kAcross = 4, kThreadColumns = kColumns / kAcross,
                       kThreadRows = kThreads / kThreadColumns;
  static constexpr int kDown = kRows / kThreadRows;
  static constexpr int kPitchA = kRows + 1, kPitchB = kColumns + 4,
                       kPitch = kColumns + 4;  // a is kept transposed
  static constexpr int kOperands = kDepth * (kPitchA + kPitchB), kSums = kRows * kPitch;
  static constexpr int kSharedBytes = (kOperands > kSums ? kOperands : kSums) * int(sizeof(Sum));
  Sum sums[kDown][kAcross] = {};

  __device__ __forceinline__ int first_row() const { return int(threadIdx.x) / kThreadColumns; }
  __device__ __forceinline__ int first_column() const { return int(threadIdx.x) % kThreadColumns * kAcross; }

  // Neighbouring threads read neighbouring columns, or rows where these are neighbours in memory.
  template <int kTileRows, int kTileColumns, class T>
  static __device__ __forceinline__ void copy(Sum* tile, int row_pitch, int column_pitch,
                                              const StridedMatrix<T>& matrix, long long row,
                                              long long column) {
    const bool by_rows = matrix.row_stride == 1;
#pragma unroll 4
    for (int c = threadIdx.x; c < kTileRows * kTileColumns; c += kThreads) {
      const int i = by_rows ? c % kTileRows : c / kTileColumns,
                j = by_rows ? c / kTileRows : c % kTileColumns;
      Sum element = 0;
      if (row + i < matrix.rows && column + j < matrix.columns)
        convert_element(element,
                        matrix.data[(row + i) * matrix.row_stride + (column + j) * matrix.column_stride]);
      tile[i * row_pitch + j * column_pitch] = element;
    }
  }

  template <class TA, class TB>
  static __device__ __forceinline__ Sum* multiply(void* shared, const StridedMatrix<TA>& a,
                                                        const StridedMatrix<TB>& b, long long row,
                                                        long long column) {
    SimtTile tile;
    Sum* const to = static_cast<Sum*>(shared);
    tile.run(to, a, b, row, column);
#pragma unroll
    for (int i = 0; i < kDown; ++i)
#pragma unroll
      for (int j = 0; j < kAcross; ++j)
        to[(tile.first_row() + i * kThreadRows) * kPitch + tile.first_column() + j] = tile.sums[i][j];
    __syncthreads();
    return to;
  }

  template <class TA, class TB>
  __device__ __forceinline__ void run(Sum* shared, const StridedMatrix<TA>& a, const StridedMatrix<TB>& b,
                                      long long row, long long column) {
    Sum* const tile_a = shared;
    Sum* const tile_b = shared + kDepth * kPitchA;
#pragma unroll 1
    for (long long k = 0; k < a.columns; k += kDepth) {
      copy<kRows, kDepth>(tile_a, 1, kPitchA, a, row, k);
      copy<kDepth, kColumns>(tile_b, kPitchB, 1, b, k, column);
      __syncthreads();
      accumulate(tile_a, tile_b);
      __syncthreads();
    }
  }

  __device__ __forceinline__ void accumulate(const Sum* tile_a, const Sum* tile_b) {
#pragma unroll 4
    for (int k = 0; k < kDepth; ++k) {
      Sum a[kDown], b[kAcross];
#pragma unroll
      for (int i = 0; i < kDown; ++i) a[i] = tile_a[k * kPitchA + first_row() + i * kThreadRows];
#pragma unroll
      for (int j = 0; j < kAcross; ++j) b[j] = tile_b[k * kPitchB + first_column() + j];
#pragma unroll
      for (int i = 0; i < kDown; ++i)
#pragma unroll
        for (int j = 0; j < kAcross; ++j) sums[i][j] = multiply_add(a[i], b[j], sums[i][j]);
    }
  }
};

// How a tile of an operand of an f32 product lies in shared memory: a row of kFree rows or columns of the matrix for each
// step along the inner dimension, four words between them: what 32 lanes copy lies in different banks.
template <int kFree, int kDepth, int kThreads, int kVector, bool kByInner>
struct FmaOperandTile {
  static constexpr int kPitch = kFree + 4, kElements = kDepth * kPitch;
  // The tile from `source` on; so much is left of the rows or columns, and of the inner dimension.
  static __device__ __forceinline__ void copy(float* tile, const float* source, long long free_stride,
                                              long long inner_stride, long long free_left, long long inner_left) {
    if constexpr (kByInner) {
      // Eight neighbours of four rows or columns, one by one.
      static_assert(kThreads % (4 * kDepth) == 0, "a thread keeps to its place along the inner dimension");
      const int inner = int(threadIdx.x) % 8 + int(threadIdx.x) / 32 % (kDepth / 8) * 8;
      const int first = int(threadIdx.x) / 8 % 4 + int(threadIdx.x) / (4 * kDepth) * 4;
      const float* const from = source + first * free_stride + inner * inner_stride;
      float* const to = tile + inner * kPitch + first;
      const bool there = inner < inner_left;
#pragma unroll
      for (int at = 0; at < kFree; at += kThreads / kDepth)
        cp_async<4>(to + at, from + at * free_stride, there && first + at < free_left ? 4 : 0);
    } else {
      copy_tile<kDepth, kFree, kPitch, kThreads, kVector>(tile, source, inner_stride, free_stride, inner_left, free_left);
    }
  }
};

// f32 by f32 at the rate of the FMA pipe: a thread has kDown x kAcross sums, in quads of neighbouring rows and columns. The
// two banks of the register file decide the rate: quads of both operands are read in turn, rows to and fro, and the sums
// lie where ptxas likes.
template <class T, int kRows, int kColumns, int kDepth, int kThreads, int kDown, int kAcross, int kStages,
          int kVectorA, bool kInnerA, int kVectorB, bool kInnerB>
struct FmaTile {
  static_assert(sizeof(T) == 4 && kDown % 4 == 0 && kAcross % 4 == 0, "products of f32, in quads");
  using A = FmaOperandTile<kRows, kDepth, kThreads, kVectorA, kInnerA>;
  using B = FmaOperandTile<kColumns, kDepth, kThreads, kVectorB, !kInnerB>;
  static constexpr int kThreadColumns = kColumns / kAcross, kThreadRows = kRows / kDown;
  static_assert(kThreadRows * kThreadColumns == kThreads, "every sum has one thread");
  static constexpr int kLaneRows = kThreadRows < 8 ? kThreadRows : 8, kLaneColumns = 32 / kLaneRows;
  static_assert(kThreadRows % kLaneRows == 0 && kThreadColumns % kLaneColumns == 0, "whole warps");
  static constexpr int kPitch = kColumns + 4;
  static constexpr int kStage = A::kElements + B::kElements;
  static constexpr int kOperands = kStages * kStage, kSums = kRows * kPitch;
  static constexpr int kSharedBytes = (kOperands > kSums ? kOperands : kSums) * int(sizeof(float));
  float sums[kDown][kAcross] = {};

  // The first of a thread's quads; the next ones are as far apart as all threads are high, or wide.
  static __device__ __forceinline__ int first_row() {
    constexpr int kWarps = kThreadColumns / kLaneColumns;
    return (int(threadIdx.x) / 32 / kWarps * kLaneRows + lane_index() / kLaneColumns) * 4;
  }
  static __device__ __forceinline__ int first_column() {
    constexpr int kWarps = kThreadColumns / kLaneColumns;
    return (int(threadIdx.x) / 32 % kWarps * kLaneColumns + lane_index() % kLaneColumns) * 4;
  }
  static constexpr __device__ __forceinline__ int row_of(int i) { return i / 4 * (4 * kThreadRows) + i % 4; }
  static constexpr __device__ __forceinline__ int column_of(int j) { return j / 4 * (4 * kThreadColumns) + j % 4; }

  static __device__ __forceinline__ float* multiply(void* shared, const StridedMatrix<float>& a,
                                                    const StridedMatrix<float>& b, long long row, long long column) {
    FmaTile tile;
    float* const to = static_cast<float*>(shared);
    tile.run(to, a, b, row, column);
    __syncthreads();
    float* const own = to + first_row() * kPitch + first_column();
#pragma unroll
    for (int i = 0; i < kDown; ++i)
#pragma unroll
      for (int j = 0; j < kAcross; ++j) own[row_of(i) * kPitch + column_of(j)] = fresh_register(tile.sums[i][j]);
    __syncthreads();
    return to;
  }

  __device__ __forceinline__ void run(float* shared, const StridedMatrix<float>& a, const StridedMatrix<float>& b,
                                      long long row, long long column) {
    const int steps = int((a.columns + kDepth - 1) / kDepth);
    constexpr int kAhead = kStages - 1;
    const float* const from_a = a.data + row * a.row_stride;
    const float* const from_b = b.data + column * b.column_stride;
#pragma unroll 1
    for (int step = -kAhead; step < steps; ++step) {
      cp_async_wait<kAhead - 1>();
      __syncthreads();
      if (const int next = step + kAhead; next < steps) {
        float* stage = shared + next % kStages * kStage;
        const long long inner = static_cast<long long>(next) * kDepth;
        A::copy(stage, from_a + inner * a.column_stride, a.row_stride, a.column_stride, a.rows - row, a.columns - inner);
        B::copy(stage + A::kElements, from_b + inner * b.row_stride, b.column_stride, b.row_stride, b.columns - column,
                b.rows - inner);
      }
      cp_async_commit();
      if (step >= 0) accumulate(shared + step % kStages * kStage);
    }
    cp_async_wait<0>();
  }

  __device__ __forceinline__ void accumulate(const float* stage) {
    const float *a = stage + first_row(), *b = stage + A::kElements + first_column();
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
      float left[kDown], right[kAcross];
#pragma unroll
      for (int i = 0; i < kDown; i += 4) get_four(left + i, a + k * A::kPitch + row_of(i));
#pragma unroll
      for (int j = 0; j < kAcross; j += 4) get_four(right + j, b + k * B::kPitch + column_of(j));
#pragma unroll
      for (int i = 0; i < kDown; ++i)
#pragma unroll
        for (int q = 0; q < kAcross; ++q) {
          const int j = i % 2 ? kAcross - 1 - q : q;
          sums[i][j] = multiply_add(left[i], right[j], sums[i][j]);
        }
    }
  }

  static __device__ __forceinline__ void get_four(float* to, const float* from) {
    const Vector<float, 4> part = load_vector<float, 4>(from);
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = part[i];
  }
};

// The tile of the block whose first row and column these are, in tile_bytes<Tile>() of shared memory: its sums,
// rows tile_pitch<Tile>() apart.
template <class Tile, class A, class B>
__device__ __forceinline__ auto multiply_tile(void* shared, const A& a, const B& b, long long row, long long column) {
  return Tile::multiply(shared, a, b, row, column);
}
template <class Tile>
__device__ __forceinline__ constexpr int tile_bytes() {
  return Tile::kSharedBytes;
}
template <class Tile>
__device__ __forceinline__ constexpr int tile_pitch() {
  return Tile::kPitch;
}
