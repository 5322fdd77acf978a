#include "worker/engine/ops/testing/fake_device_ops.h"

#include <sys/mman.h>  // style-ok(include): addresses without memory

#include <cstring>

#include "absl/status/status.h"
#include "base/status/check.h"

namespace atl::engine {
namespace {

constexpr size_t kBytes = size_t{1} << 30;
constexpr size_t kPageBytes = 4096;

char* Reserve() {
  void* const begin = mmap(nullptr, kBytes, PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(begin != MAP_FAILED);
  return static_cast<char*>(begin);
}

size_t Pages(size_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

// Needs no order with operations, which are done when they return.
class FakeDeviceCopier final : public Copier {
 public:
  explicit FakeDeviceCopier(const FakeDeviceMemory& memory) : memory_(memory) {}
  void FromHost(size_t bytes, const void* host, void* to) override {
    CHECK(!memory_.Has(host)) << "a copy from the host begins on the device";
    if (bytes > 0) std::memcpy(memory_.Contents(to), host, bytes);
  }
  void ToHost(size_t bytes, const void* from, void* host) override {
    CHECK(!memory_.Has(host)) << "a copy to the host ends on the device";
    if (bytes > 0) std::memcpy(host, memory_.Contents(from), bytes);
  }

 private:
  const FakeDeviceMemory& memory_;
};

}  // namespace

FakeDeviceMemory::FakeDeviceMemory()
    : addresses_(Reserve()), contents_(Reserve()) {}

FakeDeviceMemory::~FakeDeviceMemory() {
  munmap(addresses_, kBytes);
  munmap(contents_, kBytes);
}

absl::StatusOr<void*> FakeDeviceMemory::Allocate(size_t bytes) {
  const size_t begin = used_bytes_, whole = Pages(bytes);
  // An unmapped page separates buffers.
  if (whole + kPageBytes > kBytes - begin) {
    return absl::ResourceExhaustedError("the fake device is out of memory");
  }
  used_bytes_ += whole + kPageBytes;
  CHECK_EQ(mprotect(contents_ + begin, whole, PROT_READ | PROT_WRITE), 0);
  return addresses_ + begin;
}

void FakeDeviceMemory::Free(void* memory, size_t bytes) {
  if (memory == nullptr) return;
  const size_t whole = Pages(bytes);
  char* const contents = static_cast<char*>(Contents(memory));
  (void)madvise(contents, whole, MADV_DONTNEED);
  CHECK_EQ(mprotect(contents, whole, PROT_NONE), 0);
}

bool FakeDeviceMemory::Has(const void* address) const {
  const char* const at = static_cast<const char*>(address);
  return at >= addresses_ && at < addresses_ + kBytes;
}

void* FakeDeviceMemory::Contents(const void* address) const {
  if (address == nullptr) return nullptr;
  CHECK(Has(address)) << "memory of the host where the device's is needed";
  return contents_ + (static_cast<const char*>(address) - addresses_);
}

template <typename T>
template <typename U>
U* FakeDeviceOps<T>::Host(U* address) const {
  CHECK(!memory_.Has(address)) << "the device's memory where the host writes";
  return address;
}

template <typename T>
void FakeDeviceOps<T>::FromHost(size_t bytes, const void* host, void* to) {
  FakeDeviceCopier(memory_).FromHost(bytes, host, to);
}

template <typename T>
void FakeDeviceOps<T>::ToHost(size_t bytes, const void* from, void* host) {
  FakeDeviceCopier(memory_).ToHost(bytes, from, host);
}

template <typename T>
absl::StatusOr<std::unique_ptr<Copier>> FakeDeviceOps<T>::MakeCopier() {
  return std::make_unique<FakeDeviceCopier>(memory_);
}

template <typename T>
void FakeDeviceOps<T>::Linear(int64_t m, int64_t n, int64_t k, const T* x,
                              const T* w, T* y) {
  inner_.Linear(m, n, k, At(x), At(w), At(y));
}

template <typename T>
void FakeDeviceOps<T>::LinearBackwardInput(int64_t m, int64_t n, int64_t k,
                                           const T* dy, const T* w, T* dx) {
  inner_.LinearBackwardInput(m, n, k, At(dy), At(w), At(dx));
}

template <typename T>
void FakeDeviceOps<T>::LinearBackwardWeight(int64_t m, int64_t n, int64_t k,
                                            const T* dy, const T* x, T* dw,
                                            bool accumulate) {
  inner_.LinearBackwardWeight(m, n, k, At(dy), At(x), At(dw), accumulate);
}

template <typename T>
void FakeDeviceOps<T>::AddRmsNorm(int64_t rows, int64_t channels, T eps,
                                  const T* x, const T* delta, const T* gain,
                                  T* sum, T* y, T* rstd) {
  inner_.AddRmsNorm(rows, channels, eps, At(x), At(delta), At(gain), At(sum),
                    At(y), At(rstd));
}

template <typename T>
void FakeDeviceOps<T>::RmsNormBackward(int64_t rows, int64_t channels,
                                       const T* dy, const T* s, const T* rstd,
                                       const T* gain, T* ds, T* dgain,
                                       bool accumulate) {
  inner_.RmsNormBackward(rows, channels, At(dy), At(s), At(rstd), At(gain),
                         At(ds), At(dgain), accumulate);
}

template <typename T>
void FakeDeviceOps<T>::LayerNorm(int64_t rows, int64_t channels, T eps,
                                 const T* x, const T* gain, const T* bias, T* y,
                                 T* mean, T* rstd) {
  inner_.LayerNorm(rows, channels, eps, At(x), At(gain), At(bias), At(y),
                   At(mean), At(rstd));
}

template <typename T>
void FakeDeviceOps<T>::LayerNormBackward(int64_t rows, int64_t channels,
                                         const T* dy, const T* x, const T* mean,
                                         const T* rstd, const T* gain, T* dx,
                                         T* dgain, T* dbias, bool accumulate) {
  inner_.LayerNormBackward(rows, channels, At(dy), At(x), At(mean), At(rstd),
                           At(gain), At(dx), At(dgain), At(dbias), accumulate);
}

template <typename T>
void FakeDeviceOps<T>::AddRows(int64_t rows, int64_t channels, const T* x,
                               const T* delta, const T* bias, T* out) {
  inner_.AddRows(rows, channels, At(x), At(delta), At(bias), At(out));
}

template <typename T>
void FakeDeviceOps<T>::AddBias(int64_t rows, int64_t channels, const T* bias,
                               T* y) {
  inner_.AddBias(rows, channels, At(bias), At(y));
}

template <typename T>
void FakeDeviceOps<T>::BiasBackward(int64_t rows, int64_t channels, const T* dy,
                                    T* dbias, bool accumulate) {
  inner_.BiasBackward(rows, channels, At(dy), At(dbias), accumulate);
}

template <typename T>
void FakeDeviceOps<T>::AddPositions(int64_t rows, int64_t sequence_length,
                                    int64_t channels, const T* table, T* x) {
  inner_.AddPositions(rows, sequence_length, channels, At(table), At(x));
}

template <typename T>
void FakeDeviceOps<T>::PositionsBackward(int64_t rows, int64_t sequence_length,
                                         int64_t channels, const T* dx,
                                         T* dtable) {
  inner_.PositionsBackward(rows, sequence_length, channels, At(dx), At(dtable));
}

template <typename T>
void FakeDeviceOps<T>::Rope(const AttentionShape& shape, const T* table,
                            bool inverse, T* qkv) {
  inner_.Rope(shape, At(table), inverse, At(qkv));
}

template <typename T>
void FakeDeviceOps<T>::Attention(const AttentionShape& shape, const T* qkv,
                                 T* out, T* log_sum) {
  inner_.Attention(shape, At(qkv), At(out), At(log_sum));
}

template <typename T>
void FakeDeviceOps<T>::AttentionBackward(const AttentionShape& shape,
                                         const T* qkv, const T* out,
                                         const T* log_sum, const T* dout,
                                         T* dqkv) {
  inner_.AttentionBackward(shape, At(qkv), At(out), At(log_sum), At(dout),
                           At(dqkv));
}

template <typename T>
void FakeDeviceOps<T>::SwiGlu(int64_t rows, int64_t inner, const T* gate_up,
                              T* y) {
  inner_.SwiGlu(rows, inner, At(gate_up), At(y));
}

template <typename T>
void FakeDeviceOps<T>::SwiGluBackward(int64_t rows, int64_t inner,
                                      const T* gate_up, const T* dy,
                                      T* dgate_up) {
  inner_.SwiGluBackward(rows, inner, At(gate_up), At(dy), At(dgate_up));
}

template <typename T>
void FakeDeviceOps<T>::Gelu(int64_t n, const T* x, T* y) {
  inner_.Gelu(n, At(x), At(y));
}

template <typename T>
void FakeDeviceOps<T>::GeluBackward(int64_t n, const T* x, const T* dy, T* dx) {
  inner_.GeluBackward(n, At(x), At(dy), At(dx));
}

template <typename T>
void FakeDeviceOps<T>::Route(const RouteShape& shape, const T* logits,
                             T* probabilities, int32_t* experts, T* weights) {
  inner_.Route(shape, At(logits), At(probabilities), At(experts), At(weights));
}

template <typename T>
void FakeDeviceOps<T>::RouteBackward(const RouteShape& shape,
                                     const T* probabilities,
                                     const int32_t* experts, const T* weights,
                                     const T* dweights, const T* balance,
                                     T* dlogits) {
  inner_.RouteBackward(shape, At(probabilities), At(experts), At(weights),
                       At(dweights), At(balance), At(dlogits));
}

template <typename T>
void FakeDeviceOps<T>::AddRouteTotals(const RouteShape& shape,
                                      const T* probabilities,
                                      const int32_t* experts, T* counts,
                                      T* sums) {
  inner_.AddRouteTotals(shape, At(probabilities), At(experts), At(counts),
                        At(sums));
}

template <typename T>
void FakeDeviceOps<T>::CountChoices(const RouteShape& shape,
                                    const int32_t* experts, T* counts) {
  inner_.CountChoices(shape, At(experts), At(counts));
}

template <typename T>
void FakeDeviceOps<T>::PlanDispatch(const RouteShape& shape,
                                    const int32_t* experts, const T* before,
                                    int32_t* slots, int32_t* sources,
                                    int64_t* begins) {
  inner_.PlanDispatch(shape, At(experts), At(before), At(slots), At(sources),
                      Host(begins));
}

template <typename T>
void FakeDeviceOps<T>::GatherRows(int64_t count, int64_t channels,
                                  const int32_t* sources, const T* x, T* out) {
  inner_.GatherRows(count, channels, At(sources), At(x), At(out));
}

template <typename T>
void FakeDeviceOps<T>::CombineRows(const RouteShape& shape, int64_t channels,
                                   const int32_t* slots, const T* weights,
                                   const T* y, T* out) {
  inner_.CombineRows(shape, channels, At(slots), At(weights), At(y), At(out));
}

template <typename T>
void FakeDeviceOps<T>::CombineRowsBackward(const RouteShape& shape,
                                           int64_t channels,
                                           const int32_t* slots,
                                           const T* weights, const T* y,
                                           const T* dout, T* dy, T* dweights) {
  inner_.CombineRowsBackward(shape, channels, At(slots), At(weights), At(y),
                             At(dout), At(dy), At(dweights));
}

template <typename T>
void FakeDeviceOps<T>::Embedding(int64_t rows, int64_t begin, int64_t count,
                                 int64_t channels, const int32_t* tokens,
                                 const T* table, T* out) {
  inner_.Embedding(rows, begin, count, channels, At(tokens), At(table),
                   At(out));
}

template <typename T>
void FakeDeviceOps<T>::EmbeddingBackward(int64_t rows, int64_t begin,
                                         int64_t count, int64_t channels,
                                         const int32_t* tokens, const T* dout,
                                         T* dtable) {
  inner_.EmbeddingBackward(rows, begin, count, channels, At(tokens), At(dout),
                           At(dtable));
}

template <typename T>
void FakeDeviceOps<T>::CrossEntropy(int64_t rows, int64_t vocab,
                                    const T* logits, const int32_t* targets,
                                    T* losses) {
  inner_.CrossEntropy(rows, vocab, At(logits), At(targets), At(losses));
}

template <typename T>
void FakeDeviceOps<T>::CrossEntropyBackward(int64_t rows, int64_t vocab,
                                            T scale, T* logits,
                                            const int32_t* targets, T* losses) {
  inner_.CrossEntropyBackward(rows, vocab, scale, At(logits), At(targets),
                              At(losses));
}

template <typename T>
void FakeDeviceOps<T>::CopyColumns(int64_t rows, int64_t columns, const T* from,
                                   int64_t from_stride, T* to,
                                   int64_t to_stride) {
  inner_.CopyColumns(rows, columns, At(from), from_stride, At(to), to_stride);
}

template <typename T>
void FakeDeviceOps<T>::LogitTops(int64_t rows, int64_t count, const T* logits,
                                 T* tops) {
  inner_.LogitTops(rows, count, At(logits), At(tops));
}

template <typename T>
void FakeDeviceOps<T>::LogitSums(int64_t rows, int64_t begin, int64_t count,
                                 const T* logits, const int32_t* targets,
                                 const T* tops, T* sums, T* target_logits) {
  inner_.LogitSums(rows, begin, count, At(logits), At(targets), At(tops),
                   At(sums), At(target_logits));
}

template <typename T>
void FakeDeviceOps<T>::LogitLosses(int64_t rows, const T* tops, const T* sums,
                                   const T* target_logits, T* losses) {
  inner_.LogitLosses(rows, At(tops), At(sums), At(target_logits), At(losses));
}

template <typename T>
void FakeDeviceOps<T>::LogitGradients(int64_t rows, int64_t begin,
                                      int64_t count, T scale,
                                      const int32_t* targets, const T* tops,
                                      const T* sums, T* logits) {
  inner_.LogitGradients(rows, begin, count, scale, At(targets), At(tops),
                        At(sums), At(logits));
}

template <typename T>
void FakeDeviceOps<T>::AttendBlock(const AttentionBlock& block, const T* qkv,
                                   const T* keys_values, T* out, T* log_sum) {
  inner_.AttendBlock(block, At(qkv), At(keys_values), At(out), At(log_sum));
}

template <typename T>
void FakeDeviceOps<T>::AttendBlockBackward(const AttentionBlock& block,
                                           const T* qkv, const T* keys_values,
                                           const T* out, const T* log_sum,
                                           const T* dout, T* dqkv,
                                           T* dkeys_values) {
  inner_.AttendBlockBackward(block, At(qkv), At(keys_values), At(out),
                             At(log_sum), At(dout), At(dqkv), At(dkeys_values));
}

template <typename T>
void FakeDeviceOps<T>::SetZero(int64_t n, T* x) {
  inner_.SetZero(n, At(x));
}

template <typename T>
void FakeDeviceOps<T>::Axpy(int64_t n, T alpha, const T* x, T* y) {
  inner_.Axpy(n, alpha, At(x), At(y));
}

template <typename T>
double FakeDeviceOps<T>::Sum(int64_t n, const T* x) {
  return inner_.Sum(n, At(x));
}

template <typename T>
double FakeDeviceOps<T>::SumOfSquares(int64_t n, const T* x) {
  return inner_.SumOfSquares(n, At(x));
}

template <typename T>
void FakeDeviceOps<T>::Sgd(int64_t n, T learning_rate, T gradient_scale,
                           const T* g, T* p) {
  inner_.Sgd(n, learning_rate, gradient_scale, At(g), At(p));
}

template <typename T>
void FakeDeviceOps<T>::AdamW(int64_t n, const AdamWStep<T>& step, const T* g,
                             T* p, T* m, T* v) {
  inner_.AdamW(n, step, At(g), At(p), At(m), At(v));
}

template class FakeDeviceOps<float>;
template class FakeDeviceOps<double>;

}  // namespace atl::engine
