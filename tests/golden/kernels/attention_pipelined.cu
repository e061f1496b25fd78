extern "C" __global__ void __launch_bounds__(128) q0_block(const f16* t0, f16* __restrict__ t3, const __grid_constant__ TensorMap map0, const __grid_constant__ TensorMap map1) {
  const int lane = lane_index();
  const int warp = broadcast(int(threadIdx.x) / 32);
  unsigned char* const shared = dynamic_shared<unsigned char>();
  f16* const s15 = reinterpret_cast<f16*>(shared + 32768);
  Mbarrier* const full = reinterpret_cast<Mbarrier*>(shared + 57344);
  if (int(threadIdx.x) == 0) {
    tma_prefetch(map0);
    tma_prefetch(map1);
    mbarrier_init(full, 1);
    mbarrier_init(full + 1, 1);
    mbarrier_init_fence();
  }
  __syncthreads();
  grid_wait();
  grid_launch_dependents();
  const int first0 = int(blockIdx.x);
  const int i5 = swizzled<56>((lane & 31) * 8 + (warp & 3) * 256);
  const int i10 = (lane >> 2 & 7) + (warp & 3) * 16;
  const int i11 = (lane & 3) * 8;
  unsigned q0_8[16];
  const f16* const at9 = t0 + static_cast<long long>(first0) * 4096;
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    load_written_elements<f16, 8, true>(&q0_8[r * 4], at9 + (i10 + (r & 1) * 8) * 64 + i11 + (r >> 1 & 1) * 32, true);
  }
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    Vector<unsigned, 4> q0_8_chunk;
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      q0_8_chunk[w] = q0_8[c * 4 + w];
    }
    exchange_words<unsigned, 4>(q0_8_chunk);
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      q0_8[c * 4 + w] = q0_8_chunk[w];
    }
  }
  unsigned q0__pairs7[16];
#pragma unroll
  for (int w = 0; w < 16; ++w) {
    q0__pairs7[w] = q0_8[(w & 1) * 4 + (w >> 1 & 3) + (w >> 3 & 1) * 8];
  }
  unsigned e__pairs14[16] = {};
  float m_18[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    m_18[r] = (-infinity());
  }
  float l_21[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    l_21[r] = 0.000000000e+00f;
  }
  float n_13[32];
#pragma unroll
  for (int r = 0; r < 32; ++r) {
    n_13[r] = 0.000000000e+00f;
  }
  fence_proxy_async();
  __syncthreads();
  {
    const int iteration = 0;
    f16* const made_nv_16 = s15 + iteration % 3 * 4096;
    f16* const previous_made_nv_16 = s15 + (iteration + 2) % 3 * 4096;
    Vector<unsigned, 4> v = {};
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int i = int(threadIdx.x) + c * 128;
      store_vector<unsigned, 4>(previous_made_nv_16 + i * 8, v);
    }
    fence_proxy_async();
  }
#pragma unroll 1
  for (int iteration = 0; iteration < 2; ++iteration) {
    unsigned char* const stage = shared + iteration % 2 * 16384;
    f16* const tile_k_12 = reinterpret_cast<f16*>(stage);
    f16* const tile_v0_3 = reinterpret_cast<f16*>(stage + 8192);
    const int first1 = iteration * 64;
    if (int(threadIdx.x) == 0) {
      Mbarrier* const arrived = full + iteration % 2;
      mbarrier_arrive_expect(arrived, 16384);
      tma_load<3, true>(tile_v0_3, map0, arrived, {0, first1, first0});
      tma_load<3, true>(tile_k_12, map1, arrived, {first1, 0, first0});
    }
  }
  __syncthreads();
#pragma unroll 1
  for (int step = 0; step < 4; ++step) {
    const int iteration = step;
    unsigned char* const stage = shared + iteration % 2 * 16384;
    f16* const tile_k_12 = reinterpret_cast<f16*>(stage);
    f16* const tile_v0_3 = reinterpret_cast<f16*>(stage + 8192);
    const int first1 = iteration * 64;
    f16* const made_nv_16 = s15 + iteration % 3 * 4096;
    f16* const previous_made_nv_16 = s15 + (iteration + 2) % 3 * 4096;
    mbarrier_wait(full + iteration % 2, iteration / 2 & 1);
    float nv_2[4];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      nv_2[r] = 0.000000000e+00f;
    }
    unsigned v0_4[16];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      read_elements<f16, 8>(&v0_4[r * 4], tile_v0_3 + swizzled_sum<56>(i5, (r & 3) * 1024), true);
    }
#pragma unroll
    for (int r = 0; r < 32; ++r) {
      nv_2[r >> 3 & 3] = nv_2[r >> 3 & 3] + to_float(half_at<f16>(v0_4, r)) * to_float(half_at<f16>(v0_4, r));
    }
    float s_6[32];
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      wgmma<f16, 64>(&s_6[0], &q0__pairs7[k * 4], SharedOperand<128, true, 0, 1024>{tile_k_12, (k & 3) * 1024}, 0 < k);
    }
    wgmma_commit();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      wgmma<f16, 64>(&n_13[0], &e__pairs14[k * 4], SharedOperand<128, true, 0, 1024>{previous_made_nv_16, (k & 3) * 1024});
    }
    wgmma_commit();
    wgmma_wait<1>();
    wgmma_landed(s_6);
    float top_17[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      top_17[r] = (-infinity());
    }
#pragma unroll
    for (int r = 0; r < 32; ++r) {
      top_17[r >> 1 & 1] = max_nan(top_17[r >> 1 & 1], s_6[r]);
    }
    float top_20[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      top_20[r] = top_17[r];
      top_20[r] = max_nan(top_20[r], shuffle_xor(top_20[r], 1));
      top_20[r] = max_nan(top_20[r], shuffle_xor(top_20[r], 2));
    }
    float m__factor19[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float old = m_18[r];
      m_18[r] = max_nan(m_18[r], top_20[r]);
      m__factor19[r] = shift_factor(old, m_18[r]);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      l_21[r] = l_21[r] * m__factor19[r];
    }
    float m_frame_23[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      m_frame_23[r] = m_18[r] == (-infinity()) ? 0.000000000e+00f : m_18[r];
    }
    float e_22[32];
#pragma unroll
    for (int r = 0; r < 32; ++r) {
      e_22[r] = exp_shifted(s_6[r], 1.000000000e+00f, m_frame_23[r >> 1 & 1]);
    }
#pragma unroll
    for (int r = 0; r < 32; ++r) {
      l_21[r >> 1 & 1] = l_21[r >> 1 & 1] + e_22[r];
    }
    float nv_25[4];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      nv_25[r] = nv_2[r];
      nv_25[r] = nv_25[r] + shuffle_xor(nv_25[r], 1);
      nv_25[r] = nv_25[r] + shuffle_xor(nv_25[r], 2);
      nv_25[r] = nv_25[r] + shuffle_xor(nv_25[r], 4);
    }
    float nv_24[4];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      nv_24[r] = divide_fast(1.000000000e+00f, sqrt_fast(__fadd_rn(nv_25[r] * 1.562500000e-02f, 9.999999747e-06f)));
    }
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      Vector<unsigned, 4> v;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        v[j] = pack<f16>(to_float(half_at<f16>(v0_4, c * 8 + j * 2)) * nv_24[c * 8 + j * 2 >> 3 & 3], to_float(half_at<f16>(v0_4, c * 8 + j * 2 + 1)) * nv_24[c * 8 + j * 2 + 1 >> 3 & 3]);
      }
      store_vector<unsigned, 4>(made_nv_16 + swizzled_sum<56>(i5, (c & 3) * 1024), v);
    }
    fence_proxy_async();
    __syncthreads();
    if (step + 2 < 4) {
      const int iteration = step + 2;
      unsigned char* const stage = shared + iteration % 2 * 16384;
      f16* const tile_k_12 = reinterpret_cast<f16*>(stage);
      f16* const tile_v0_3 = reinterpret_cast<f16*>(stage + 8192);
      const int first1 = iteration * 64;
      if (int(threadIdx.x) == 0) {
        Mbarrier* const arrived = full + iteration % 2;
        mbarrier_arrive_expect(arrived, 16384);
        tma_load<3, true>(tile_v0_3, map0, arrived, {0, first1, first0});
        tma_load<3, true>(tile_k_12, map1, arrived, {first1, 0, first0});
      }
    }
    wgmma_wait<0>();
    wgmma_landed(n_13);
#pragma unroll
    for (int r = 0; r < 32; ++r) {
      n_13[r] = n_13[r] * m__factor19[r >> 1 & 1];
    }
#pragma unroll
    for (int w = 0; w < 16; ++w) {
      e__pairs14[w] = pack<f16>(e_22[w * 2], e_22[w * 2 + 1]);
    }
  }
  {
    const int iteration = 4;
    f16* const made_nv_16 = s15 + iteration % 3 * 4096;
    f16* const previous_made_nv_16 = s15 + (iteration + 2) % 3 * 4096;
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      wgmma<f16, 64>(&n_13[0], &e__pairs14[k * 4], SharedOperand<128, true, 0, 1024>{previous_made_nv_16, (k & 3) * 1024});
    }
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_landed(n_13);
  }
  __syncthreads();
  float l_27[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    l_27[r] = l_21[r];
    l_27[r] = l_27[r] + shuffle_xor(l_27[r], 1);
    l_27[r] = l_27[r] + shuffle_xor(l_27[r], 2);
  }
  f16* const to26 = t3 + static_cast<long long>(first0) * 4096;
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    Vector<f16, 8> v;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int r = c * 8 + j;
      v[j] = from_float<f16>(divide_fast(n_13[(r & 1) + (r >> 1 & 3) * 4 + (r >> 3 & 1) * 2 + (r >> 4 & 1) * 16], l_27[r >> 3 & 1]));
    }
    exchange_words<f16, 8>(v);
    store_vector<f16, 8>(to26 + (i10 + (c & 1) * 8) * 64 + i11 + (c >> 1 & 1) * 32, v);
  }
}

