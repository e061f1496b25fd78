extern "C" __global__ void __launch_bounds__(512, 1) q0_block(bf16* __restrict__ t2, const __grid_constant__ TensorMap map0, const __grid_constant__ TensorMap map1) {
  const int lane = lane_index();
  const int warp = broadcast(int(threadIdx.x) / 32);
  unsigned char* const shared = dynamic_shared<unsigned char>();
  bf16* const s7 = reinterpret_cast<bf16*>(shared);
  Mbarrier* const full = reinterpret_cast<Mbarrier*>(shared + 98304);
  Mbarrier* const empty = full + 2;
  if (int(threadIdx.x) == 0) {
    tma_prefetch(map0);
    tma_prefetch(map1);
    mbarrier_init(full, 1);
    mbarrier_init(empty, 12);
    mbarrier_init(full + 1, 1);
    mbarrier_init(empty + 1, 12);
    mbarrier_init_fence();
  }
  __syncthreads();
  grid_wait();
  grid_launch_dependents();
  const int first0 = min(int(blockIdx.y) * 192, 64);
  const int first0_own = int(blockIdx.y) * 192 - first0;
  const int first2 = min(int(blockIdx.x) * 192, 128);
  const int first2_own = int(blockIdx.x) * 192 - first2;
  const int i5 = (warp >> 2 & 1) * 8192 + (warp >> 3 & 1) * 4096;
  const int i8 = swizzled<56>((lane & 15) * 64 + (lane >> 4 & 1) * 8 + (warp & 3) * 1024 + (warp >> 2 & 1) * 8192 + (warp >> 3 & 1) * 4096);
  const int i10 = warp & 7;
  const int i11 = (lane & 31) * 8;
  const int i13 = swizzled<56>((lane & 7) * 8 + (lane >> 3 & 3) * 16384 + (warp & 7) * 64);
  // producer
  if (warp >= 12) {
    setmaxnreg_dec<24>();
    if (int(threadIdx.x) == 384) {
#pragma unroll 1
      for (int iteration = 0; iteration < 3; ++iteration) {
        mbarrier_wait(empty + iteration % 2, iteration / 2 & 1 ^ 1);
        unsigned char* const stage = shared + iteration % 2 * 49152;
        bf16* const tile_v0_4 = reinterpret_cast<bf16*>(stage);
        bf16* const tile_v1_6 = reinterpret_cast<bf16*>(stage + 24576);
        const int first1 = iteration * 64;
        Mbarrier* const arrived = full + iteration % 2;
        mbarrier_arrive_expect(arrived, 49152);
        tma_load<2, false>(tile_v0_4, map0, arrived, {first1, first0});
        tma_load<2, false>(tile_v1_6, map1, arrived, {first2, first1});
        tma_load<2, false>(tile_v1_6 + 4096, map1, arrived, {first2 + 64, first1});
        tma_load<2, false>(tile_v1_6 + 8192, map1, arrived, {first2 + 128, first1});
      }
    }
    return;
  }
  setmaxnreg_inc<160>();
  float v3_3[96];
#pragma unroll
  for (int r = 0; r < 96; ++r) {
    v3_3[r] = 0.000000000e+00f;
  }
#pragma unroll 1
  for (int iteration = 0; iteration < 3; ++iteration) {
    unsigned char* const stage = shared + iteration % 2 * 49152;
    bf16* const tile_v0_4 = reinterpret_cast<bf16*>(stage);
    bf16* const tile_v1_6 = reinterpret_cast<bf16*>(stage + 24576);
    const int first1 = iteration * 64;
    mbarrier_wait(full + iteration % 2, iteration / 2 & 1);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      wgmma<bf16, 192>(&v3_3[0], SharedOperand<128, false, 0, 1024>{tile_v0_4, i5 + (k & 3) * 16}, SharedOperand<128, true, 8192, 1024>{tile_v1_6, (k & 3) * 1024});
    }
    wgmma_commit();
    wgmma_wait<1>();
    __syncwarp();
    if (0 < iteration && lane == 0) {
      mbarrier_arrive(empty + (iteration - 1) % 2);
    }
  }
  wgmma_wait<0>();
  wgmma_landed(v3_3);
  barrier_of<384>();
#pragma unroll
  for (int c = 0; c < 12; ++c) {
    Vector<bf16, 8> v;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int r = c * 8 + j;
      v[j] = from_float<bf16>(v3_3[r]);
    }
    stmatrix_at<bf16, 8>(s7 + swizzled_sum<56>(i8, (c & 3) * 16 + (c >> 2 & 3) * 16384), v);
  }
  barrier_of<384>();
  bf16* const to9 = t2 + static_cast<long long>(first0) * 320 + static_cast<long long>(first2);
  if ((warp & 8) == 0) {
#pragma unroll
    for (int c = 0; c < 32; ++c) {
      if (first0_own <= i10 + (c & 31) * 8 && i10 + (c & 31) * 8 < 192 && first2_own <= i11 && i11 < 192) {
        bf16 own12[8];
        get_elements<bf16, 8>(&own12[0], s7 + swizzled_sum<56>(i13, (c & 31) * 512));
        Vector<bf16, 8> v;
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          v[j] = own12[j];
        }
        store_vector<bf16, 8>(to9 + (i10 + (c & 31) * 8) * 320 + i11, v);
      }
    }
  }
}

