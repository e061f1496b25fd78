extern "C" __global__ void __launch_bounds__(128) q0_block(const bf16* t0, bf16* __restrict__ t3, const __grid_constant__ TensorMap map0, const __grid_constant__ TensorMap map1) {
  const int lane = lane_index();
  const int warp = broadcast(int(threadIdx.x) / 32);
  unsigned char* const shared = dynamic_shared<unsigned char>();
  Mbarrier* const full = reinterpret_cast<Mbarrier*>(shared + 32768);
  if (int(threadIdx.x) == 0) {
    tma_prefetch(map0);
    tma_prefetch(map1);
    mbarrier_init(full, 1);
    mbarrier_init(full + 1, 1);
    mbarrier_init_fence();
  }
  __syncthreads();
  const int first0 = int(blockIdx.x);
  const int i6 = (lane >> 2 & 7) + (warp & 3) * 16;
  const int i7 = (lane & 3) * 8;
  grid_wait();
  grid_launch_dependents();
#pragma unroll 1
  for (int iteration = 0; iteration < 1; ++iteration) {
    {
      unsigned char* const stage = shared + iteration % 2 * 16384;
      bf16* const tile_k0_8 = reinterpret_cast<bf16*>(stage);
      bf16* const tile_v0_18 = reinterpret_cast<bf16*>(stage + 8192);
      const int first1 = iteration * 64;
      if (int(threadIdx.x) == 0) {
        Mbarrier* const arrived = full + iteration % 2;
        mbarrier_arrive_expect(arrived, 16384);
        tma_load<3, true>(tile_k0_8, map0, arrived, {first1, 0, first0});
        tma_load<3, true>(tile_v0_18, map1, arrived, {0, first1, first0});
      }
    }
  }
  unsigned q0_4[16];
  const bf16* const at5 = t0 + static_cast<long long>(first0) * 4096;
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    load_written_elements<bf16, 8, true>(&q0_4[r * 4], at5 + (i6 + (r & 1) * 8) * 64 + i7 + (r >> 1 & 1) * 32, true);
  }
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    Vector<unsigned, 4> q0_4_chunk;
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      q0_4_chunk[w] = q0_4[c * 4 + w];
    }
    exchange_words<unsigned, 4>(q0_4_chunk);
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      q0_4[c * 4 + w] = q0_4_chunk[w];
    }
  }
  unsigned q0__pairs3[16];
#pragma unroll
  for (int w = 0; w < 16; ++w) {
    q0__pairs3[w] = q0_4[(w & 1) * 4 + (w >> 1 & 3) + (w >> 3 & 1) * 8];
  }
  float m_10[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    m_10[r] = (-infinity());
  }
  float l_13[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    l_13[r] = 0.000000000e+00f;
  }
  float n_16[32];
#pragma unroll
  for (int r = 0; r < 32; ++r) {
    n_16[r] = 0.000000000e+00f;
  }
#pragma unroll 1
  for (int step = 0; step < 4; ++step) {
    __syncthreads();
    if (step + 1 < 4) {
      const int iteration = step + 1;
      unsigned char* const stage = shared + iteration % 2 * 16384;
      bf16* const tile_k0_8 = reinterpret_cast<bf16*>(stage);
      bf16* const tile_v0_18 = reinterpret_cast<bf16*>(stage + 8192);
      const int first1 = iteration * 64;
      if (int(threadIdx.x) == 0) {
        Mbarrier* const arrived = full + iteration % 2;
        mbarrier_arrive_expect(arrived, 16384);
        tma_load<3, true>(tile_k0_8, map0, arrived, {first1, 0, first0});
        tma_load<3, true>(tile_v0_18, map1, arrived, {0, first1, first0});
      }
    }
    const int iteration = step;
    unsigned char* const stage = shared + iteration % 2 * 16384;
    bf16* const tile_k0_8 = reinterpret_cast<bf16*>(stage);
    bf16* const tile_v0_18 = reinterpret_cast<bf16*>(stage + 8192);
    const int first1 = iteration * 64;
    mbarrier_wait(full + iteration % 2, iteration / 2 & 1);
    float s_2[32];
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      wgmma<bf16, 64>(&s_2[0], &q0__pairs3[k * 4], SharedOperand<128, true, 0, 1024>{tile_k0_8, (k & 3) * 1024}, 0 < k);
    }
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_landed(s_2);
    float top_9[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      top_9[r] = (-infinity());
    }
#pragma unroll
    for (int r = 0; r < 32; ++r) {
      top_9[r >> 1 & 1] = max_nan(top_9[r >> 1 & 1], s_2[r]);
    }
    float top_12[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      top_12[r] = top_9[r];
      top_12[r] = max_nan(top_12[r], shuffle_xor(top_12[r], 1));
      top_12[r] = max_nan(top_12[r], shuffle_xor(top_12[r], 2));
    }
    float m__factor11[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float old = m_10[r];
      m_10[r] = max_nan(m_10[r], top_12[r]);
      m__factor11[r] = shift_factor(old, m_10[r]);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      l_13[r] = l_13[r] * m__factor11[r];
    }
    float m_frame_15[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      m_frame_15[r] = m_10[r] == (-infinity()) ? 0.000000000e+00f : m_10[r];
    }
    float e_14[32];
#pragma unroll
    for (int r = 0; r < 32; ++r) {
      e_14[r] = exp_shifted_bounded(s_2[r], 1.000000000e+00f, m_frame_15[r >> 1 & 1], 9.000000000e+00f);
    }
#pragma unroll
    for (int r = 0; r < 32; ++r) {
      l_13[r >> 1 & 1] = l_13[r >> 1 & 1] + e_14[r];
    }
#pragma unroll
    for (int r = 0; r < 32; ++r) {
      n_16[r] = n_16[r] * m__factor11[r >> 1 & 1];
    }
    unsigned e__pairs17[16];
#pragma unroll
    for (int w = 0; w < 16; ++w) {
      e__pairs17[w] = pack<bf16>(e_14[w * 2], e_14[w * 2 + 1]);
    }
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      wgmma<bf16, 64>(&n_16[0], &e__pairs17[k * 4], SharedOperand<128, true, 0, 1024>{tile_v0_18, (k & 3) * 1024});
    }
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_landed(n_16);
  }
  float l_20[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    l_20[r] = l_13[r];
    l_20[r] = l_20[r] + shuffle_xor(l_20[r], 1);
    l_20[r] = l_20[r] + shuffle_xor(l_20[r], 2);
  }
  bf16* const to19 = t3 + static_cast<long long>(first0) * 4096;
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    Vector<bf16, 8> v;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int r = c * 8 + j;
      v[j] = from_float<bf16>(divide_fast(n_16[(r & 1) + (r >> 1 & 3) * 4 + (r >> 3 & 1) * 2 + (r >> 4 & 1) * 16], l_20[r >> 3 & 1]));
    }
    exchange_words<bf16, 8>(v);
    store_vector<bf16, 8>(to19 + (i6 + (c & 1) * 8) * 64 + i7 + (c >> 1 & 1) * 32, v);
  }
}

