extern "C" __global__ void __launch_bounds__(128) q0_block(const bf16* __restrict__ t0, const bf16* __restrict__ t1, const bf16* __restrict__ t2, bf16* __restrict__ t3) {
  const int lane = lane_index();
  const int warp = int(threadIdx.x) / 32;
  unsigned char* const shared = dynamic_shared<unsigned char>();
  const int first0 = int(blockIdx.x);
  const int i6 = (lane >> 2 & 7) + (warp & 1) * 32 + (warp >> 1 & 1) * 16;
  const int i7 = (lane & 3) * 8;
  const int i11 = (lane >> 3 & 3) + (warp & 3) * 4;
  const int i12 = (lane & 7) * 8;
  const int i13 = swizzled<56>((lane & 31) * 8 + (warp & 3) * 256);
  const int i15 = swizzled<56>((lane & 15) * 64 + (lane >> 4 & 1) * 8);
#pragma unroll 1
  for (int iteration = 0; iteration < 1; ++iteration) {
    {
      unsigned char* const stage = shared + iteration % 2 * 16384;
      bf16* const tile_k0_8 = reinterpret_cast<bf16*>(stage);
      bf16* const tile_v0_25 = reinterpret_cast<bf16*>(stage + 8192);
      const int first1 = iteration * 64;
      const bf16* const at9 = t1 + static_cast<long long>(first0) * 16384 + static_cast<long long>(first1);
      {
        const bf16* const own10 = at9 + i11 * 256 + i12;
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          cp_async<16>(tile_k0_8 + swizzled_sum<56>(i13, (r & 3) * 1024), own10 + (r & 3) * 16 * 256);
        }
      }
      const bf16* const at26 = t2 + static_cast<long long>(first0) * 16384 + static_cast<long long>(first1) * 64;
      {
        const bf16* const own27 = at26 + i11 * 64 + i12;
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          cp_async<16>(tile_v0_25 + swizzled_sum<56>(i13, (r & 3) * 1024), own27 + (r & 3) * 16 * 64);
        }
      }
    }
    cp_async_commit();
  }
  unsigned q0_4[16];
  const bf16* const at5 = t0 + static_cast<long long>(first0) * 4096;
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    load_elements<bf16, 8, true>(&q0_4[r * 4], at5 + (i6 + (r & 1) * 8) * 64 + i7 + (r >> 1 & 1) * 32, true);
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
  float m_17[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    m_17[r] = (-infinity());
  }
  float l_20[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    l_20[r] = 0.000000000e+00f;
  }
  float n_23[32];
#pragma unroll
  for (int r = 0; r < 32; ++r) {
    n_23[r] = 0.000000000e+00f;
  }
#pragma unroll 1
  for (int step = 0; step < 4; ++step) {
    cp_async_wait<0>();
    __syncthreads();
    if (step + 1 < 4) {
      const int iteration = step + 1;
      unsigned char* const stage = shared + iteration % 2 * 16384;
      bf16* const tile_k0_8 = reinterpret_cast<bf16*>(stage);
      bf16* const tile_v0_25 = reinterpret_cast<bf16*>(stage + 8192);
      const int first1 = iteration * 64;
      const bf16* const at9 = t1 + static_cast<long long>(first0) * 16384 + static_cast<long long>(first1);
      {
        const bf16* const own10 = at9 + i11 * 256 + i12;
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          cp_async<16>(tile_k0_8 + swizzled_sum<56>(i13, (r & 3) * 1024), own10 + (r & 3) * 16 * 256);
        }
      }
      const bf16* const at26 = t2 + static_cast<long long>(first0) * 16384 + static_cast<long long>(first1) * 64;
      {
        const bf16* const own27 = at26 + i11 * 64 + i12;
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          cp_async<16>(tile_v0_25 + swizzled_sum<56>(i13, (r & 3) * 1024), own27 + (r & 3) * 16 * 64);
        }
      }
    }
    cp_async_commit();
    const int iteration = step;
    unsigned char* const stage = shared + iteration % 2 * 16384;
    bf16* const tile_k0_8 = reinterpret_cast<bf16*>(stage);
    bf16* const tile_v0_25 = reinterpret_cast<bf16*>(stage + 8192);
    const int first1 = iteration * 64;
    float s_2[32] = {};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      unsigned k0__step14[16];
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        ldmatrix_trans_at<4>(&k0__step14[r * 4], tile_k0_8 + swizzled_sum<56>(i15, (k * 4 + r & 3) * 16 + (k * 4 + r >> 2 & 3) * 1024));
      }
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        mma_fragment<bf16, false>(&s_2[n * 4], &q0__pairs3[k * 4], &k0__step14[n * 2]);
      }
    }
    float top_16[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      top_16[r] = (-infinity());
    }
#pragma unroll
    for (int r = 0; r < 32; ++r) {
      top_16[r >> 1 & 1] = max_nan(top_16[r >> 1 & 1], s_2[r]);
    }
    float top_19[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      top_19[r] = top_16[r];
      top_19[r] = max_nan(top_19[r], shuffle_xor(top_19[r], 1));
      top_19[r] = max_nan(top_19[r], shuffle_xor(top_19[r], 2));
    }
    float m__factor18[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float old = m_17[r];
      m_17[r] = max_nan(m_17[r], top_19[r]);
      m__factor18[r] = shift_factor(old, m_17[r]);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      l_20[r] = l_20[r] * m__factor18[r];
    }
    float m_frame_22[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      m_frame_22[r] = m_17[r] == (-infinity()) ? 0.000000000e+00f : m_17[r];
    }
    float e_21[32];
#pragma unroll
    for (int r = 0; r < 32; ++r) {
      e_21[r] = exp_shifted_bounded(s_2[r], 1.000000000e+00f, m_frame_22[r >> 1 & 1], 9.000000000e+00f);
    }
#pragma unroll
    for (int r = 0; r < 32; ++r) {
      l_20[r >> 1 & 1] = l_20[r >> 1 & 1] + e_21[r];
    }
#pragma unroll
    for (int r = 0; r < 32; ++r) {
      n_23[r] = n_23[r] * m__factor18[r >> 1 & 1];
    }
    unsigned e__pairs24[16];
#pragma unroll
    for (int w = 0; w < 16; ++w) {
      e__pairs24[w] = pack<bf16>(e_21[w * 2], e_21[w * 2 + 1]);
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      unsigned v0__step28[16];
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        ldmatrix_trans_at<4>(&v0__step28[r * 4], tile_v0_25 + swizzled_sum<56>(i15, (k * 4 + r & 3) * 16 + (k * 4 + r >> 2 & 3) * 1024));
      }
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        mma_fragment<bf16, false>(&n_23[n * 4], &e__pairs24[k * 4], &v0__step28[n * 2]);
      }
    }
  }
  cp_async_wait<0>();
  float l_30[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    l_30[r] = l_20[r];
    l_30[r] = l_30[r] + shuffle_xor(l_30[r], 1);
    l_30[r] = l_30[r] + shuffle_xor(l_30[r], 2);
  }
  bf16* const to29 = t3 + static_cast<long long>(first0) * 4096;
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    Vector<bf16, 8> v;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int r = c * 8 + j;
      v[j] = from_float<bf16>(divide_fast(n_23[(r & 1) + (r >> 1 & 3) * 4 + (r >> 3 & 1) * 2 + (r >> 4 & 1) * 16], l_30[r >> 3 & 1]));
    }
    exchange_words<bf16, 8>(v);
    store_vector<bf16, 8>(to29 + (i6 + (c & 1) * 8) * 64 + i7 + (c >> 1 & 1) * 32, v);
  }
}

