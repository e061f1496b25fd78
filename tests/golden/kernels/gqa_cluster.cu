extern "C" __global__ void __launch_bounds__(128) q0_block(const f16* __restrict__ t0, const f16* __restrict__ t1, const f16* __restrict__ t2, f16* __restrict__ t3) {
  const int lane = lane_index();
  const int warp = int(threadIdx.x) / 32;
  unsigned char* const shared = dynamic_shared<unsigned char>();
  float* const s28 = reinterpret_cast<float*>(shared + 48);
  float* const s30 = reinterpret_cast<float*>(shared + 64);
  float* const s31 = reinterpret_cast<float*>(shared);
  const int rank = cluster_rank();
  const int block_x = int(blockIdx.x) / 3;
  grid_launch_dependents();
  const int first0 = block_x;
  const int first1 = int(blockIdx.z) * 2;
  const int i7 = lane >> 2 & 7;
  const int i8 = (lane & 3) * 4;
  const int i13 = (lane & 3) * 2;
  const int i27 = lane & 2 ^ (lane & 1) * 4;
  const int i29 = lane & 1;
  const int i33 = lane & 7;
  const int i34 = lane >> 3 & 1;
  f16 q0_5[4];
  const f16* const at6 = t0 + static_cast<long long>(first0) * 12 + static_cast<long long>(first1) * 3;
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    q0_5[r] = i7 < 2 && i8 + (r & 3) < 3 ? at6[i7 * 3 + i8 + (r & 3)] : f16{};
  }
  unsigned q0__pairs4[2];
#pragma unroll
  for (int w = 0; w < 2; ++w) {
    q0__pairs4[w] = pack<f16>(to_float(q0_5[w * 2]), to_float(q0_5[w * 2 + 1]));
  }
  f16 next_k0_10[4] = {};
  f16 k0_10[4] = {};
  float m_14[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    m_14[r] = (-infinity());
  }
  float l_17[1];
  l_17[0] = 0.000000000e+00f;
  float n_20[4];
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    n_20[r] = 0.000000000e+00f;
  }
  f16 next_v0_23[4] = {};
  f16 v0_23[4] = {};
#pragma unroll 1
  for (int step = 0; step < 3; ++step) {
    if (step < 2) {
      const int iteration = step;
      const int first2 = rank * 4 + iteration * 2;
      const f16* const at11 = t1 + static_cast<long long>(first0) * 36 + static_cast<long long>(first2);
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        next_k0_10[r] = i8 + (r & 3) < 3 && i7 < 2 ? at11[(i8 + (r & 3)) * 12 + i7] : f16{};
      }
      const f16* const at24 = t2 + static_cast<long long>(first0) * 60 + static_cast<long long>(first2) * 5;
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        next_v0_23[r] = i13 + (r & 1) + (r >> 1 & 1) * 8 < 2 && i7 < 5 ? at24[(i13 + (r & 1) + (r >> 1 & 1) * 8) * 5 + i7] : f16{};
      }
    }
    if (0 < step) {
      const int iteration = step - 1;
      const int first2 = rank * 4 + iteration * 2;
      float s_3[4] = {};
      unsigned k0__pairs9[2];
#pragma unroll
      for (int w = 0; w < 2; ++w) {
        k0__pairs9[w] = pack<f16>(to_float(k0_10[w * 2]), to_float(k0_10[w * 2 + 1]));
      }
      mma_fragment<f16, true>(&s_3[0], &q0__pairs4[0], &k0__pairs9[0]);
      float top_12[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        top_12[r] = (-infinity());
      }
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        if (i13 + (r & 1) < 2) {
          top_12[r >> 1 & 1] = max_nan(top_12[r >> 1 & 1], s_3[r]);
        }
      }
      float top_16[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        top_16[r] = top_12[r];
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
      l_17[0] = l_17[0] * m__factor15[0];
      float m_frame_19[1];
      m_frame_19[0] = m_14[0] == (-infinity()) ? 0.000000000e+00f : m_14[0];
      float e_18[4];
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        e_18[r] = exp_shifted(s_3[r & 1], 1.000000000e+00f, m_frame_19[0]);
      }
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        if (i13 + (r & 1) + (r >> 1 & 1) * 8 < 2) {
          l_17[0] = l_17[0] + e_18[r];
        }
      }
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        n_20[r] = n_20[r] * m__factor15[r >> 1 & 1];
      }
      unsigned e__pairs21[2];
#pragma unroll
      for (int w = 0; w < 2; ++w) {
        e__pairs21[w] = pack<f16>(i13 + (w * 2 & 1) + (w * 2 >> 1 & 1) * 8 < 2 ? e_18[w * 2] : float{}, i13 + (w * 2 + 1 & 1) + (w * 2 + 1 >> 1 & 1) * 8 < 2 ? e_18[w * 2 + 1] : float{});
      }
      unsigned v0__pairs22[2];
#pragma unroll
      for (int w = 0; w < 2; ++w) {
        v0__pairs22[w] = pack<f16>(to_float(v0_23[w * 2]), to_float(v0_23[w * 2 + 1]));
      }
      mma_fragment<f16, true>(&n_20[0], &e__pairs21[0], &v0__pairs22[0]);
    }
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      k0_10[r] = next_k0_10[r];
    }
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      v0_23[r] = next_v0_23[r];
    }
  }
  float l_25[1];
  l_25[0] = l_17[0];
  l_25[0] = l_25[0] + shuffle_xor(l_25[0], 1);
  l_25[0] = l_25[0] + shuffle_xor(l_25[0], 2);
  float l_26[1];
  l_26[0] = shuffle(l_25[0], i27);
  if ((lane & 30) == 0 && (warp & 3) == 0) {
    {
      Vector<float, 1> v;
      v[0] = l_26[0];
      store_vector<float, 1>(s28 + i29, v);
    }
  }
  if ((lane & 3) == 0 && (warp & 3) == 0) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      if (i7 + (c & 1) * 8 < 2) {
        Vector<float, 1> v;
        v[0] = m_14[c];
        store_vector<float, 1>(s30 + i7 + (c & 1) * 8, v);
      }
    }
  }
  if ((warp & 3) == 0) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      if (i7 + (c >> 1 & 1) * 8 < 2 && i13 + (c & 1) < 5) {
        Vector<float, 1> v;
        v[0] = n_20[c];
        store_vector<float, 1>(s31 + (i7 + (c >> 1 & 1) * 8) * 5 + i13 + (c & 1), v);
      }
    }
  }
  cluster_sync();
  float m_factor36[3];
  cluster_factors<3>(&m_factor36[0], s30 + i34, true);
  float nc_35[1] = {};
  if (i33 < 5) {
#pragma unroll
    for (int block = 0; block < 3; ++block) {
      Vector<float, 1> v;
      load_cluster_elements<float, 1>(v, s31 + i34 * 5 + i33, block);
      nc_35[0] = block == 0 ? m_factor36[block] * v[0] : nc_35[0] + m_factor36[block] * v[0];
    }
  }
  float lc_37[1] = {};
#pragma unroll
  for (int block = 0; block < 3; ++block) {
    Vector<float, 1> v;
    load_cluster_elements<float, 1>(v, s28 + i34, block);
    lc_37[0] = block == 0 ? m_factor36[block] * v[0] : lc_37[0] + m_factor36[block] * v[0];
  }
  cluster_arrive();
  f16* const to32 = t3 + static_cast<long long>(first0) * 20 + static_cast<long long>(first1) * 5;
  if ((lane & 16) == 0 && (warp & 3) == 0 && rank == 0) {
    if (i33 < 5) {
      to32[i34 * 5 + i33] = from_float<f16>(divide_fast(nc_35[0], lc_37[0]));
    }
  }
  cluster_wait();
}

