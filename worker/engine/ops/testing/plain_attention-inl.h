// PlainOps' rotary embedding and attention: a part of plain_ops.cc.

namespace atl::engine {

template <typename T>
void PlainOps<T>::Rope(const AttentionShape& s, const T* table, bool inverse,
                       T* qkv) {
  const int64_t half = s.head_dim / 2;
  for (int64_t r = 0; r < s.rows(); ++r) {
    const T* cosines = table + (r % s.sequence_length) * s.head_dim;
    const T* sines = cosines + half;
    for (int64_t h = 0; h < s.head_count + s.kv_head_count; ++h) {
      T* z = qkv + r * s.qkv_size() + h * s.head_dim;
      for (int64_t i = 0; i < half; ++i) {
        const T a = z[i], b = z[i + half];
        const T sine = inverse ? -sines[i] : sines[i];
        z[i] = a * cosines[i] - b * sine;
        z[i + half] = b * cosines[i] + a * sine;
      }
    }
  }
}

template <typename T>
void PlainOps<T>::Attention(const AttentionShape& s, const T* qkv, T* out,
                            T* log_sum) {
  const T scale = AttentionScale<T>(s);
  const int64_t group = s.head_count / s.kv_head_count;
  std::vector<T> scores(s.sequence_length);
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.head_count; ++h) {
      const auto q = QkvHead(s, qkv, b, h);
      const auto k = QkvHead(s, qkv, b, s.head_count + h / group);
      const auto v =
          QkvHead(s, qkv, b, s.head_count + s.kv_head_count + h / group);
      const auto o = OutHead(s, out, b, h);
      for (int64_t t = 0; t < s.sequence_length; ++t) {
        for (int64_t u = 0; u <= t; ++u) {
          scores[u] = scale * Dot(s.head_dim, q.row(t), k.row(u));
        }
        const T log_total = LogSumExp(t + 1, scores.data());
        log_sum[(b * s.head_count + h) * s.sequence_length + t] = log_total;
        std::fill(o.row(t), o.row(t) + s.head_dim, T(0));
        for (int64_t u = 0; u <= t; ++u) {
          const T p = std::exp(scores[u] - log_total);
          for (int64_t d = 0; d < s.head_dim; ++d) {
            o.row(t)[d] += p * v.row(u)[d];
          }
        }
      }
    }
  }
}

template <typename T>
void PlainOps<T>::AttentionBackward(const AttentionShape& s, const T* qkv,
                                    const T* out, const T* log_sum,
                                    const T* dout, T* dqkv) {
  const T scale = AttentionScale<T>(s);
  const int64_t group = s.head_count / s.kv_head_count;
  std::fill(dqkv, dqkv + s.rows() * s.qkv_size(), T(0));
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.head_count; ++h) {
      const int64_t key_head = s.head_count + h / group;
      const int64_t value_head = key_head + s.kv_head_count;
      const auto q = QkvHead(s, qkv, b, h), k = QkvHead(s, qkv, b, key_head);
      const auto v = QkvHead(s, qkv, b, value_head);
      const auto dq = QkvHead(s, dqkv, b, h);
      const auto dk = QkvHead(s, dqkv, b, key_head);
      const auto dv = QkvHead(s, dqkv, b, value_head);
      const auto o = OutHead(s, out, b, h), d_o = OutHead(s, dout, b, h);
      const T* sums = log_sum + (b * s.head_count + h) * s.sequence_length;
      for (int64_t t = 0; t < s.sequence_length; ++t) {
        const T mean = Dot(s.head_dim, d_o.row(t), o.row(t));
        for (int64_t u = 0; u <= t; ++u) {
          const T score = scale * Dot(s.head_dim, q.row(t), k.row(u));
          const T p = std::exp(score - sums[t]);
          const T dp = Dot(s.head_dim, d_o.row(t), v.row(u));
          const T dscore = p * (dp - mean) * scale;
          for (int64_t d = 0; d < s.head_dim; ++d) {
            dv.row(u)[d] += p * d_o.row(t)[d];
            dq.row(t)[d] += dscore * k.row(u)[d];
            dk.row(u)[d] += dscore * q.row(t)[d];
          }
        }
      }
    }
  }
}

// Head `head` of the 2 G key and value heads, from the block's first key on.
template <typename T>
HeadView<T> KvHead(const AttentionBlock& block, T* keys_values, int64_t batch,
                   int64_t head) {
  const AttentionShape& s = block.shape;
  return {keys_values +
              (batch * s.sequence_length + block.key_begin) * block.kv_size() +
              head * s.head_dim,
          block.kv_size()};
}

template <typename T>
void PlainOps<T>::AttendBlock(const AttentionBlock& block, const T* qkv,
                              const T* keys_values, T* out, T* log_sum) {
  const AttentionShape& s = block.shape;
  const T scale = AttentionScale<T>(s);
  const int64_t group = s.head_count / s.kv_head_count;
  std::vector<T> scores(block.key_count);
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.head_count; ++h) {
      const auto q = QkvHead(s, qkv, b, h), o = OutHead(s, out, b, h);
      const auto k = KvHead(block, keys_values, b, h / group);
      const auto v = KvHead(block, keys_values, b, s.kv_head_count + h / group);
      T* sums = log_sum + (b * s.head_count + h) * s.sequence_length;
      for (int64_t i = 0; i < block.query_count; ++i) {
        const int64_t t = block.query_begin + i;
        for (int64_t u = 0; u < block.key_count; ++u) {
          scores[u] = scale * Dot(s.head_dim, q.row(t), k.row(u));
        }
        const T logs[2] = {sums[t], LogSumExp(block.key_count, scores.data())};
        const T log_total = LogSumExp(2, logs);
        const T kept = std::exp(sums[t] - log_total);
        for (int64_t d = 0; d < s.head_dim; ++d) o.row(t)[d] *= kept;
        for (int64_t u = 0; u < block.key_count; ++u) {
          const T p = std::exp(scores[u] - log_total);
          for (int64_t d = 0; d < s.head_dim; ++d) {
            o.row(t)[d] += p * v.row(u)[d];
          }
        }
        sums[t] = log_total;
      }
    }
  }
}

template <typename T>
void PlainOps<T>::AttendBlockBackward(const AttentionBlock& block, const T* qkv,
                                      const T* keys_values, const T* out,
                                      const T* log_sum, const T* dout, T* dqkv,
                                      T* dkeys_values) {
  const AttentionShape& s = block.shape;
  const T scale = AttentionScale<T>(s);
  const int64_t group = s.head_count / s.kv_head_count;
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.head_count; ++h) {
      const int64_t key_head = h / group;
      const int64_t value_head = key_head + s.kv_head_count;
      const auto q = QkvHead(s, qkv, b, h), dq = QkvHead(s, dqkv, b, h);
      const auto k = KvHead(block, keys_values, b, key_head);
      const auto v = KvHead(block, keys_values, b, value_head);
      const auto dk = KvHead(block, dkeys_values, b, key_head);
      const auto dv = KvHead(block, dkeys_values, b, value_head);
      const auto o = OutHead(s, out, b, h), d_o = OutHead(s, dout, b, h);
      const T* sums = log_sum + (b * s.head_count + h) * s.sequence_length;
      for (int64_t i = 0; i < block.query_count; ++i) {
        const int64_t t = block.query_begin + i;
        const T mean = Dot(s.head_dim, d_o.row(t), o.row(t));
        for (int64_t u = 0; u < block.key_count; ++u) {
          const T score = scale * Dot(s.head_dim, q.row(t), k.row(u));
          const T p = std::exp(score - sums[t]);
          const T dp = Dot(s.head_dim, d_o.row(t), v.row(u));
          const T dscore = p * (dp - mean) * scale;
          for (int64_t d = 0; d < s.head_dim; ++d) {
            dv.row(u)[d] += p * d_o.row(t)[d];
            dq.row(t)[d] += dscore * k.row(u)[d];
            dk.row(u)[d] += dscore * q.row(t)[d];
          }
        }
      }
    }
  }
}

}  // namespace atl::engine
