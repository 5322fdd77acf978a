// PlainOps' operations of a mixture of experts: a part of plain_ops.cc.

namespace atl::engine {

template <typename T>
void PlainOps<T>::Route(const RouteShape& shape, const T* logits,
                        T* probabilities, int32_t* experts, T* weights) {
  const int64_t n = shape.expert_count, k = shape.experts_per_token;
  for (int64_t r = 0; r < shape.rows; ++r) {
    const T log_total = LogSumExp(n, logits + r * n);
    T* p = probabilities + r * n;
    for (int64_t e = 0; e < n; ++e)
      p[e] = std::exp(logits[r * n + e] - log_total);
    T total = 0;
    for (int64_t j = 0; j < k; ++j) {
      const int32_t* chosen = experts + r * k;
      int64_t best = -1;
      for (int64_t e = 0; e < n; ++e) {
        if (std::find(chosen, chosen + j, e) != chosen + j) continue;
        if (best < 0 || p[e] > p[best]) best = e;
      }
      experts[r * k + j] = static_cast<int32_t>(best);
      total += p[best];
    }
    for (int64_t j = 0; j < k; ++j) {
      weights[r * k + j] = p[experts[r * k + j]] / total;
    }
  }
}

template <typename T>
void PlainOps<T>::RouteBackward(const RouteShape& shape, const T* probabilities,
                                const int32_t* experts, const T* weights,
                                const T* dweights, const T* balance,
                                T* dlogits) {
  const int64_t n = shape.expert_count, k = shape.experts_per_token;
  std::vector<T> dp(n);
  for (int64_t r = 0; r < shape.rows; ++r) {
    const T* p = probabilities + r * n;
    std::copy(balance, balance + n, dp.begin());
    const T mean = Dot(k, weights + r * k, dweights + r * k);
    T total = 0;
    for (int64_t j = 0; j < k; ++j) total += p[experts[r * k + j]];
    for (int64_t j = 0; j < k; ++j) {
      dp[experts[r * k + j]] += (dweights[r * k + j] - mean) / total;
    }
    const T inner = Dot(n, p, dp.data());
    for (int64_t e = 0; e < n; ++e) dlogits[r * n + e] = p[e] * (dp[e] - inner);
  }
}

template <typename T>
void PlainOps<T>::AddRouteTotals(const RouteShape& shape,
                                 const T* probabilities, const int32_t* experts,
                                 T* counts, T* sums) {
  const int64_t n = shape.expert_count;
  for (int64_t i = 0; i < shape.rows * shape.experts_per_token; ++i) {
    counts[experts[i]] += T(1);
  }
  for (int64_t i = 0; i < shape.rows * n; ++i) sums[i % n] += probabilities[i];
}

template <typename T>
void PlainOps<T>::CountChoices(const RouteShape& shape, const int32_t* experts,
                               T* counts) {
  const int64_t n = shape.expert_count;
  const int64_t of_group = shape.group_rows * shape.experts_per_token;
  std::fill(counts, counts + shape.group_count() * n, T(0));
  for (int64_t i = 0; i < shape.rows * shape.experts_per_token; ++i) {
    counts[i / of_group * n + experts[i]] += T(1);
  }
}

template <typename T>
void PlainOps<T>::PlanDispatch(const RouteShape& shape, const int32_t* experts,
                               const T* before, int32_t* slots,
                               int32_t* sources, int64_t* begins) {
  const int64_t n = shape.expert_count;
  const int64_t choices = shape.rows * shape.experts_per_token;
  const int64_t of_group = shape.group_rows * shape.experts_per_token;
  int64_t slot = 0;
  for (int64_t e = 0; e < n; ++e) {
    begins[e] = slot;
    int64_t chosen = 0;  // Before this choice: in this group, and `before` it.
    for (int64_t i = 0; i < choices; ++i) {
      if (i % of_group == 0) {
        chosen = before == nullptr
                     ? 0
                     : static_cast<int64_t>(before[i / of_group * n + e]);
      }
      if (experts[i] != e) continue;
      const bool kept = chosen++ < shape.capacity;
      slots[i] = kept ? static_cast<int32_t>(slot) : -1;
      if (kept) {
        sources[slot++] = static_cast<int32_t>(i / shape.experts_per_token);
      }
    }
  }
  begins[shape.expert_count] = slot;
}

template <typename T>
void PlainOps<T>::GatherRows(int64_t count, int64_t channels,
                             const int32_t* sources, const T* x, T* out) {
  for (int64_t i = 0; i < count; ++i) {
    const T* row = x + sources[i] * channels;
    std::copy(row, row + channels, out + i * channels);
  }
}

template <typename T>
void PlainOps<T>::CombineRows(const RouteShape& shape, int64_t channels,
                              const int32_t* slots, const T* weights,
                              const T* y, T* out) {
  const int64_t k = shape.experts_per_token;
  std::fill(out, out + shape.rows * channels, T(0));
  for (int64_t i = 0; i < shape.rows * k; ++i) {
    if (slots[i] < 0) continue;
    const T weight = weights != nullptr ? weights[i] : T(1);
    for (int64_t c = 0; c < channels; ++c) {
      out[i / k * channels + c] += weight * y[slots[i] * channels + c];
    }
  }
}

template <typename T>
void PlainOps<T>::CombineRowsBackward(const RouteShape& shape, int64_t channels,
                                      const int32_t* slots, const T* weights,
                                      const T* y, const T* dout, T* dy,
                                      T* dweights) {
  const int64_t k = shape.experts_per_token;
  for (int64_t i = 0; i < shape.rows * k; ++i) {
    dweights[i] = T(0);
    if (slots[i] < 0) continue;
    const T* d = dout + i / k * channels;
    dweights[i] = Dot(channels, d, y + slots[i] * channels);
    for (int64_t c = 0; c < channels; ++c) {
      dy[slots[i] * channels + c] = weights[i] * d[c];
    }
  }
}

}  // namespace atl::engine
