extern "C" __global__ void __launch_bounds__(288) q0_block(bf16* __restrict__ t3, const bf16* t2, const __grid_constant__ TensorMap map0, const __grid_constant__ TensorMap map1) {
  const int lane = lane_index();
  const int warp = broadcast(int(threadIdx.x) / 32);
  unsigned char* const shared = dynamic_shared<unsigned char>();
  Mbarrier* const full = reinterpret_cast<Mbarrier*>(shared + 98304);
  Mbarrier* const empty = full + 3;
  if (int(threadIdx.x) == 0) {
    tma_prefetch(map0);
    tma_prefetch(map1);
    mbarrier_init(full, 1);
    mbarrier_init(empty, 8);
    mbarrier_init(full + 1, 1);
    mbarrier_init(empty + 1, 8);
    mbarrier_init(full + 2, 1);
    mbarrier_init(empty + 2, 8);
    mbarrier_init_fence();
  }
  __syncthreads();
  grid_wait();
  grid_launch_dependents();
  // producer
  if (warp == 8) {
    if (lane == 0) {
#pragma unroll 1
      for (int turn = 0; turn < (10 - int(blockIdx.x)) / 3; ++turn) {
        const int tile = int(blockIdx.x) + turn * 3;
        const int tile_x = tile % 4;
        const int tile_y = tile / 4 % 2;
        const int tile_z = tile / 4 / 2;
        const int first0 = tile_y * 128;
        const int first2 = tile_x * 128;
        const int i5 = (warp >> 2 & 1) * 4096;
        const int i10 = (lane >> 2 & 7) + (warp & 7) * 16;
        const int i11 = (lane & 3) * 8;
#pragma unroll 1
        for (int iteration = 0; iteration < 3; ++iteration) {
          mbarrier_wait(empty + (turn * 3 + iteration) % 3, (turn * 3 + iteration) / 3 & 1 ^ 1);
          unsigned char* const stage = shared + (turn * 3 + iteration) % 3 * 32768;
          bf16* const tile_v0_4 = reinterpret_cast<bf16*>(stage);
          bf16* const tile_v1_6 = reinterpret_cast<bf16*>(stage + 16384);
          const int first1 = iteration * 64;
          Mbarrier* const arrived = full + (turn * 3 + iteration) % 3;
          mbarrier_arrive_expect(arrived, 32768);
          tma_load<2, false>(tile_v0_4, map0, arrived, {first1, first0});
          tma_load<2, false>(tile_v1_6, map1, arrived, {first2, first1});
          tma_load<2, false>(tile_v1_6 + 4096, map1, arrived, {first2 + 64, first1});
        }
      }
    }
    return;
  }
#pragma unroll 1
  for (int turn = 0; turn < (10 - int(blockIdx.x)) / 3; ++turn) {
    const int tile = int(blockIdx.x) + turn * 3;
    const int tile_x = tile % 4;
    const int tile_y = tile / 4 % 2;
    const int tile_z = tile / 4 / 2;
    const int first0 = tile_y * 128;
    const int first2 = tile_x * 128;
    const int i5 = (warp >> 2 & 1) * 4096;
    const int i10 = (lane >> 2 & 7) + (warp & 7) * 16;
    const int i11 = (lane & 3) * 8;
    float v3_3[64];
#pragma unroll
    for (int r = 0; r < 64; ++r) {
      v3_3[r] = 0.000000000e+00f;
    }
#pragma unroll 1
    for (int iteration = 0; iteration < 3; ++iteration) {
      unsigned char* const stage = shared + (turn * 3 + iteration) % 3 * 32768;
      bf16* const tile_v0_4 = reinterpret_cast<bf16*>(stage);
      bf16* const tile_v1_6 = reinterpret_cast<bf16*>(stage + 16384);
      const int first1 = iteration * 64;
      mbarrier_wait(full + (turn * 3 + iteration) % 3, (turn * 3 + iteration) / 3 & 1);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        wgmma<bf16, 128>(&v3_3[0], SharedOperand<128, false, 0, 1024>{tile_v0_4, i5 + (k & 3) * 16}, SharedOperand<128, true, 8192, 1024>{tile_v1_6, (k & 3) * 1024});
      }
      wgmma_commit();
      wgmma_wait<1>();
      __syncwarp();
      if (0 < iteration && lane == 0) {
        mbarrier_arrive(empty + (turn * 3 + iteration - 1) % 3);
      }
    }
    wgmma_wait<0>();
    wgmma_landed(v3_3);
    __syncwarp();
    if (lane == 0) {
      mbarrier_arrive(empty + (turn * 3 + 2) % 3);
    }
    unsigned v4_8[32];
    const bf16* const at9 = t2 + static_cast<long long>(first0) * 512 + static_cast<long long>(first2);
    bf16* const to7 = t3 + static_cast<long long>(first0) * 512 + static_cast<long long>(first2);
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      load_written_elements<bf16, 8, true>(&v4_8[c * 4], at9 + (i10 + (c & 1) * 8) * 512 + i11 + (c >> 1 & 3) * 32, true);
    }
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      Vector<unsigned, 4> v4_8_chunk;
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        v4_8_chunk[w] = v4_8[c * 4 + w];
      }
      exchange_words<unsigned, 4>(v4_8_chunk);
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        v4_8[c * 4 + w] = v4_8_chunk[w];
      }
      Vector<bf16, 8> v;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const int r = c * 8 + j;
        v[j] = from_float<bf16>(__fadd_rn(v3_3[(r & 1) + (r >> 1 & 3) * 4 + (r >> 3 & 1) * 2 + (r >> 4 & 3) * 16], to_float(half_at<bf16>(v4_8, r))));
      }
      exchange_words<bf16, 8>(v);
      store_vector<bf16, 8>(to7 + (i10 + (c & 1) * 8) * 512 + i11 + (c >> 1 & 3) * 32, v);
    }
  }
}

