extern "C" __global__ void __launch_bounds__(288) q0_block(bf16* __restrict__ t2, const __grid_constant__ TensorMap map0, const __grid_constant__ TensorMap map1) {
  const int lane = lane_index();
  const int warp = broadcast(int(threadIdx.x) / 32);
  unsigned char* const shared = dynamic_shared<unsigned char>();
  bf16* const s8 = reinterpret_cast<bf16*>(shared + 98304);
  const int rank = cluster_rank();
  Mbarrier* const full = reinterpret_cast<Mbarrier*>(shared + 114688);
  Mbarrier* const empty = full + 4;
  if (int(threadIdx.x) == 0) {
    tma_prefetch(map0);
    tma_prefetch(map1);
    mbarrier_init(full, 1);
    mbarrier_init(empty, 16);
    mbarrier_init(full + 1, 1);
    mbarrier_init(empty + 1, 16);
    mbarrier_init(full + 2, 1);
    mbarrier_init(empty + 2, 16);
    mbarrier_init(full + 3, 1);
    mbarrier_init(empty + 3, 16);
    mbarrier_init_fence();
  }
  cluster_sync();
  grid_wait();
  grid_launch_dependents();
  // producer
  if (warp == 8) {
    if (lane == 0) {
#pragma unroll 1
      for (int turn = 0; turn < (13 - int(blockIdx.x)) / 4; ++turn) {
        const int tile = int(blockIdx.x) + turn * 4;
        const int tile_x = tile / 2 % 5;
        const int tile_y = tile / 2 / 5 % 1 * 2 + rank;
        const int tile_z = tile / 2 / 5;
        const int first0 = tile_y * 128;
        const int first2 = tile_x * 64;
        const int i5 = (warp >> 2 & 1) * 4096;
        const int i10 = swizzled<56>((lane & 15) * 64 + (lane >> 4 & 1) * 8);
        const int i12 = swizzled<56>((lane & 31) * 8);
        const int i13 = (lane >> 3 & 3) + (warp & 7) * 16;
        const int i14 = (lane & 7) * 8;
#pragma unroll 1
        for (int iteration = 0; iteration < 3; ++iteration) {
          mbarrier_wait(empty + (turn * 3 + iteration) % 4, (turn * 3 + iteration) / 4 & 1 ^ 1);
          unsigned char* const stage = shared + (turn * 3 + iteration) % 4 * 24576;
          bf16* const tile_v0_4 = reinterpret_cast<bf16*>(stage);
          bf16* const tile_v1_6 = reinterpret_cast<bf16*>(stage + 16384);
          const int first1 = iteration * 64;
          Mbarrier* const arrived = full + (turn * 3 + iteration) % 4;
          mbarrier_arrive_expect(arrived, 24576);
          tma_load<2, false>(tile_v0_4, map0, arrived, {first1, first0});
          tma_load_multicast<2>(tile_v1_6 + rank * 2048, map1, arrived, 3, {first2, first1 + rank * 32});
        }
      }
    }
    return;
  }
#pragma unroll 1
  for (int turn = 0; turn < (13 - int(blockIdx.x)) / 4; ++turn) {
    const int tile = int(blockIdx.x) + turn * 4;
    const int tile_x = tile / 2 % 5;
    const int tile_y = tile / 2 / 5 % 1 * 2 + rank;
    const int tile_z = tile / 2 / 5;
    const int first0 = tile_y * 128;
    const int first2 = tile_x * 64;
    const int i5 = (warp >> 2 & 1) * 4096;
    const int i10 = swizzled<56>((lane & 15) * 64 + (lane >> 4 & 1) * 8);
    const int i12 = swizzled<56>((lane & 31) * 8);
    const int i13 = (lane >> 3 & 3) + (warp & 7) * 16;
    const int i14 = (lane & 7) * 8;
    float v3_3[32];
#pragma unroll
    for (int r = 0; r < 32; ++r) {
      v3_3[r] = 0.000000000e+00f;
    }
#pragma unroll 1
    for (int iteration = 0; iteration < 3; ++iteration) {
      unsigned char* const stage = shared + (turn * 3 + iteration) % 4 * 24576;
      bf16* const tile_v0_4 = reinterpret_cast<bf16*>(stage);
      bf16* const tile_v1_6 = reinterpret_cast<bf16*>(stage + 16384);
      const int first1 = iteration * 64;
      mbarrier_wait(full + (turn * 3 + iteration) % 4, (turn * 3 + iteration) / 4 & 1);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        wgmma<bf16, 64>(&v3_3[0], SharedOperand<128, false, 0, 1024>{tile_v0_4, i5 + (k & 3) * 16}, SharedOperand<128, true, 0, 1024>{tile_v1_6, (k & 3) * 1024});
      }
      wgmma_commit();
      wgmma_wait<1>();
      __syncwarp();
      if (0 < iteration && lane < 2) {
        mbarrier_arrive_at(empty + (turn * 3 + iteration - 1) % 4, lane);
      }
    }
    wgmma_wait<0>();
    wgmma_landed(v3_3);
    __syncwarp();
    if (lane < 2) {
      mbarrier_arrive_at(empty + (turn * 3 + 2) % 4, lane);
    }
    bf16* const to7 = t2 + static_cast<long long>(first0) * 320 + static_cast<long long>(first2);
    {
      bf16* const rows9 = s8 + int(threadIdx.x) / 32 * 1024;
      __syncwarp();
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        Vector<bf16, 8> v;
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          const int r = c * 8 + j;
          v[j] = from_float<bf16>(v3_3[r]);
        }
        stmatrix_at<bf16, 8>(rows9 + swizzled_sum<56>(i10, (c & 3) * 16), v);
      }
      __syncwarp();
#pragma unroll
      for (int a = 0; a < 4; ++a) {
        bf16 own11[8];
        get_elements<bf16, 8>(&own11[0], rows9 + swizzled_sum<56>(i12, (a & 3) * 256));
        {
          Vector<bf16, 8> v;
#pragma unroll
          for (int j = 0; j < 8; ++j) {
            v[j] = own11[j];
          }
          store_vector<bf16, 8>(to7 + (i13 + (a & 3) * 4) * 320 + i14, v);
        }
      }
    }
  }
  cluster_sync();
}

