#include "worker/engine/ops/cpu/matmul.h"

#include <omp.h>

#include <map>

#include "base/status/check.h"
#include "oneapi/dnnl/dnnl.h"

namespace atl::engine {
namespace {

#define ATL_CHECK_DNNL(call) CHECK_EQ(call, dnnl_success)

dnnl_memory_desc_t Matrix(int64_t rows, int64_t columns, dnnl_data_type_t type,
                          int64_t row, int64_t column) {
  const dnnl_dims_t dims = {rows, columns};
  const dnnl_dims_t strides = {row, column};
  dnnl_memory_desc_t desc;
  ATL_CHECK_DNNL(
      dnnl_memory_desc_init_by_strides(&desc, 2, dims, type, strides));
  return desc;
}

struct Primitive {
  dnnl_primitive_t handle = nullptr;
  dnnl_memory_desc_t a, b, c, scratch;
};

}  // namespace

class MatmulBf16::Primitives {
 public:
  Primitives() { ATL_CHECK_DNNL(dnnl_engine_create(&engine_, dnnl_cpu, 0)); }
  ~Primitives() {
    for (auto& [shape, primitive] : made_) {
      dnnl_primitive_destroy(primitive.handle);
    }
    dnnl_engine_destroy(engine_);
  }

  dnnl_engine_t engine() const { return engine_; }

  void Prepare(const MatmulShape& shape) {
    Primitive& primitive = made_[shape];
    if (primitive.handle == nullptr) Make(shape, primitive);
  }
  const Primitive& Get(const MatmulShape& shape) const {
    return made_.at(shape);
  }

 private:
  void Make(const MatmulShape& shape, Primitive& primitive) {
    primitive.a =
        Matrix(shape.m, shape.k, dnnl_bf16, shape.a_row, shape.a_column);
    primitive.b =
        Matrix(shape.k, shape.n, dnnl_bf16, shape.b_row, shape.b_column);
    primitive.c = Matrix(shape.m, shape.n, dnnl_f32, shape.c_row, 1);
    dnnl_primitive_attr_t attributes = nullptr;
    ATL_CHECK_DNNL(dnnl_primitive_attr_create(&attributes));
    if (shape.accumulate) {
      dnnl_post_ops_t sum = nullptr;
      ATL_CHECK_DNNL(dnnl_post_ops_create(&sum));
      ATL_CHECK_DNNL(dnnl_post_ops_append_sum(sum, 1.0f));
      ATL_CHECK_DNNL(dnnl_primitive_attr_set_post_ops(attributes, sum));
      dnnl_post_ops_destroy(sum);
    }
    // The default scratchpad belongs to the thread that makes the primitive.
    ATL_CHECK_DNNL(dnnl_primitive_attr_set_scratchpad_mode(
        attributes, dnnl_scratchpad_mode_user));
    dnnl_matmul_desc_t desc;
    ATL_CHECK_DNNL(dnnl_matmul_desc_init(&desc, &primitive.a, &primitive.b,
                                         nullptr, &primitive.c));
    dnnl_primitive_desc_t made = nullptr;
    ATL_CHECK_DNNL(
        dnnl_primitive_desc_create(&made, &desc, attributes, engine_, nullptr));
    primitive.scratch =
        *dnnl_primitive_desc_query_md(made, dnnl_query_scratchpad_md, 0);
    ATL_CHECK_DNNL(dnnl_primitive_create(&primitive.handle, made));
    dnnl_primitive_desc_destroy(made);
    dnnl_primitive_attr_destroy(attributes);
  }

  dnnl_engine_t engine_ = nullptr;
  std::map<MatmulShape, Primitive> made_;
};

MatmulBf16::MatmulBf16() = default;
MatmulBf16::~MatmulBf16() = default;

void MatmulBf16::Prepare(const MatmulShape& shape) {
  if (primitives_ == nullptr) primitives_ = std::make_unique<Primitives>();
  primitives_->Prepare(shape);
}

int64_t MatmulBf16::ScratchBytes(const MatmulShape& shape) const {
  return static_cast<int64_t>(
      dnnl_memory_desc_get_size(&primitives_->Get(shape).scratch));
}

void MatmulBf16::Multiply(const MatmulShape& shape, const void* a,
                          const void* b, float* c, void* scratch) const {
  omp_set_num_threads(1);  // For this thread; more would change the bits.
  const Primitive& primitive = primitives_->Get(shape);
  constexpr int kCount = 4;
  dnnl_memory_t memories[kCount] = {};
  const dnnl_memory_desc_t* descs[kCount] = {&primitive.a, &primitive.b,
                                             &primitive.c, &primitive.scratch};
  void* const data[kCount] = {const_cast<void*>(a), const_cast<void*>(b), c,
                              scratch};
  for (int i = 0; i < kCount; ++i) {
    ATL_CHECK_DNNL(dnnl_memory_create(&memories[i], descs[i],
                                      primitives_->engine(), data[i]));
  }
  dnnl_stream_t stream = nullptr;
  ATL_CHECK_DNNL(dnnl_stream_create(&stream, primitives_->engine(),
                                    dnnl_stream_default_flags));
  const dnnl_exec_arg_t arguments[kCount] = {
      {DNNL_ARG_SRC, memories[0]},
      {DNNL_ARG_WEIGHTS, memories[1]},
      {DNNL_ARG_DST, memories[2]},
      {DNNL_ARG_SCRATCHPAD, memories[3]}};
  ATL_CHECK_DNNL(
      dnnl_primitive_execute(primitive.handle, stream, kCount, arguments));
  ATL_CHECK_DNNL(dnnl_stream_wait(stream));
  dnnl_stream_destroy(stream);
  for (dnnl_memory_t memory : memories) dnnl_memory_destroy(memory);
}

#undef ATL_CHECK_DNNL

}  // namespace atl::engine
