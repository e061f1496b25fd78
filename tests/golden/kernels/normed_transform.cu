extern "C" __global__ void __launch_bounds__(384, 1) q0_block(const f16* t0, f16* __restrict__ t3, const __grid_constant__ TensorMap map0, const __grid_constant__ TensorMap map1) {
  const int lane = lane_index();
  const int warp = broadcast(int(threadIdx.x) / 32);
  unsigned char* const shared = dynamic_shared<unsigned char>();
  f16* const s25 = reinterpret_cast<f16*>(shared);
  Mbarrier* const full = reinterpret_cast<Mbarrier*>(shared + 49152);
  Mbarrier* const empty = full + 6;
  if (int(threadIdx.x) == 0) {
    tma_prefetch(map0);
    tma_prefetch(map1);
    mbarrier_init(full, 1);
    mbarrier_init(full + 1, 4);
    mbarrier_init(empty, 4);
    mbarrier_init(full + 2, 1);
    mbarrier_init(full + 3, 4);
    mbarrier_init(empty + 1, 4);
    mbarrier_init(full + 4, 1);
    mbarrier_init(full + 5, 4);
    mbarrier_init(empty + 2, 4);
    mbarrier_init_fence();
  }
  __syncthreads();
  grid_wait();
  grid_launch_dependents();
  const int first0 = int(blockIdx.x);
  const int i5 = swizzled<56>((lane & 31) * 8 + (warp & 3) * 256);
  const int i10 = (lane >> 2 & 7) + (warp & 3) * 16;
  const int i11 = (lane & 3) * 8;
  const int i26 = swizzled<56>((lane & 15) * 64 + (lane >> 4 & 1) * 8 + (warp & 3) * 1024);
  const int i30 = (lane >> 3 & 3) + (warp & 3) * 4;
  const int i31 = (lane & 7) * 8;
  // producer
  if (warp >= 8) {
    setmaxnreg_dec<24>();
    if (int(threadIdx.x) == 256) {
#pragma unroll 1
      for (int iteration = 0; iteration < 4; ++iteration) {
        mbarrier_wait(empty + iteration % 3, iteration / 3 & 1 ^ 1);
        unsigned char* const stage = shared + iteration % 3 * 16384;
        f16* const tile_k_12 = reinterpret_cast<f16*>(stage);
        f16* const tile_v0_3 = reinterpret_cast<f16*>(stage + 8192);
        f16* const transformed_nv_22 = tile_v0_3;
        const int first1 = iteration * 64;
        Mbarrier* const arrived = full + iteration % 3 * 2;
        mbarrier_arrive_expect(arrived, 16384);
        tma_load<3, true>(tile_v0_3, map0, arrived, {0, first1, first0});
        tma_load<3, true>(tile_k_12, map1, arrived, {first1, 0, first0});
      }
    }
    return;
  }
  // transform
  if (warp >= 4) {
    setmaxnreg_dec<128>();
    const int own_warp = warp - 4;
#pragma unroll 1
    for (int iteration = 0; iteration < 4; ++iteration) {
      unsigned char* const stage = shared + iteration % 3 * 16384;
      f16* const tile_k_12 = reinterpret_cast<f16*>(stage);
      f16* const tile_v0_3 = reinterpret_cast<f16*>(stage + 8192);
      f16* const transformed_nv_22 = tile_v0_3;
      const int first1 = iteration * 64;
      mbarrier_wait(full + iteration % 3 * 2, iteration / 3 & 1);
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
      float nv_24[4];
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        nv_24[r] = nv_2[r];
        nv_24[r] = nv_24[r] + shuffle_xor(nv_24[r], 1);
        nv_24[r] = nv_24[r] + shuffle_xor(nv_24[r], 2);
        nv_24[r] = nv_24[r] + shuffle_xor(nv_24[r], 4);
      }
      float nv_23[4];
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        nv_23[r] = divide_fast(1.000000000e+00f, sqrt_fast(__fadd_rn(nv_24[r] * 1.562500000e-02f, 9.999999747e-06f)));
      }
      __syncwarp();
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        Vector<unsigned, 4> v;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          v[j] = pack<f16>(to_float(half_at<f16>(v0_4, c * 8 + j * 2)) * nv_23[c * 8 + j * 2 >> 3 & 3], to_float(half_at<f16>(v0_4, c * 8 + j * 2 + 1)) * nv_23[c * 8 + j * 2 + 1 >> 3 & 3]);
        }
        store_vector<unsigned, 4>(transformed_nv_22 + swizzled_sum<56>(i5, (c & 3) * 1024), v);
      }
      fence_proxy_async();
      __syncwarp();
      if (lane == 0) {
        mbarrier_arrive(full + iteration % 3 * 2 + 1);
      }
    }
    return;
  }
  setmaxnreg_inc<240>();
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
  float m_14[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    m_14[r] = (-infinity());
  }
  float l_17[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    l_17[r] = 0.000000000e+00f;
  }
  float n_20[32];
#pragma unroll
  for (int r = 0; r < 32; ++r) {
    n_20[r] = 0.000000000e+00f;
  }
#pragma unroll 1
  for (int iteration = 0; iteration < 4; ++iteration) {
    unsigned char* const stage = shared + iteration % 3 * 16384;
    f16* const tile_k_12 = reinterpret_cast<f16*>(stage);
    f16* const tile_v0_3 = reinterpret_cast<f16*>(stage + 8192);
    f16* const transformed_nv_22 = tile_v0_3;
    const int first1 = iteration * 64;
    mbarrier_wait(full + iteration % 3 * 2, iteration / 3 & 1);
    mbarrier_wait(full + iteration % 3 * 2 + 1, iteration / 3 & 1);
    float s_6[32];
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      wgmma<f16, 64>(&s_6[0], &q0__pairs7[k * 4], SharedOperand<128, true, 0, 1024>{tile_k_12, (k & 3) * 1024}, 0 < k);
    }
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_landed(s_6);
    float top_13[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      top_13[r] = (-infinity());
    }
#pragma unroll
    for (int r = 0; r < 32; ++r) {
      top_13[r >> 1 & 1] = max_nan(top_13[r >> 1 & 1], s_6[r]);
    }
    float top_16[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      top_16[r] = top_13[r];
      top_16[r] = max_nan(top_16[r], shuffle_xor(top_16[r], 1));
      top_16[r] = max_nan(top_16[r], shuffle_xor(top_16[r], 2));
    }
    float m__factor15[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float old = m_14[r];
      m_14[r] = max_nan(m_14[r], top_16[r]);
      m__factor15[r] = shift_factor(old, m_14[r]);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      l_17[r] = l_17[r] * m__factor15[r];
    }
    float m_frame_19[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      m_frame_19[r] = m_14[r] == (-infinity()) ? 0.000000000e+00f : m_14[r];
    }
    float e_18[32];
#pragma unroll
    for (int r = 0; r < 32; ++r) {
      e_18[r] = exp_shifted(s_6[r], 1.000000000e+00f, m_frame_19[r >> 1 & 1]);
    }
#pragma unroll
    for (int r = 0; r < 32; ++r) {
      l_17[r >> 1 & 1] = l_17[r >> 1 & 1] + e_18[r];
    }
#pragma unroll
    for (int r = 0; r < 32; ++r) {
      n_20[r] = n_20[r] * m__factor15[r >> 1 & 1];
    }
    unsigned e__pairs21[16];
#pragma unroll
    for (int w = 0; w < 16; ++w) {
      e__pairs21[w] = pack<f16>(e_18[w * 2], e_18[w * 2 + 1]);
    }
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      wgmma<f16, 64>(&n_20[0], &e__pairs21[k * 4], SharedOperand<128, true, 0, 1024>{transformed_nv_22, (k & 3) * 1024});
    }
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_landed(n_20);
    __syncwarp();
    if (lane == 0) {
      mbarrier_arrive(empty + iteration % 3);
    }
  }
  barrier_of<128>();
  float l_27[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    l_27[r] = l_17[r];
    l_27[r] = l_27[r] + shuffle_xor(l_27[r], 1);
    l_27[r] = l_27[r] + shuffle_xor(l_27[r], 2);
  }
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    Vector<f16, 8> v;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int r = c * 8 + j;
      v[j] = from_float<f16>(divide_fast(n_20[r], l_27[r >> 1 & 1]));
    }
    stmatrix_at<f16, 8>(s25 + swizzled_sum<56>(i26, (c & 3) * 16), v);
  }
  barrier_of<128>();
  f16* const to28 = t3 + static_cast<long long>(first0) * 4096;
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    {
      f16 own29[8];
      get_elements<f16, 8>(&own29[0], s25 + swizzled_sum<56>(i5, (c & 3) * 1024));
      Vector<f16, 8> v;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        v[j] = own29[j];
      }
      store_vector<f16, 8>(to28 + (i30 + (c & 3) * 16) * 64 + i31, v);
    }
  }
}

