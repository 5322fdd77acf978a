#include "worker/engine/ops/cuda/cudnn_plan.h"

#include <array>
#include <utility>

#include "base/status/status_macros.h"

namespace atl::engine::cuda {
namespace {

// Alignment, in bytes, of all tensors that the caller supplies.
constexpr int64_t kAlignment = 16;
// How many kernels are tried.
constexpr int64_t kOfferCountMax = 8;

cudnnDataType_t ToType(GraphType type) {
  switch (type) {
    case GraphType::kBf16:
      return CUDNN_DATA_BFLOAT16;
    case GraphType::kF32:
      return CUDNN_DATA_FLOAT;
    case GraphType::kInt32:
      return CUDNN_DATA_INT32;
    case GraphType::kBool:
      return CUDNN_DATA_BOOLEAN;
  }
  return CUDNN_DATA_FLOAT;
}

cudnnPointwiseMode_t ToMode(GraphKind kind) {
  switch (kind) {
    case GraphKind::kMultiply:
      return CUDNN_POINTWISE_MUL;
    case GraphKind::kAdd:
      return CUDNN_POINTWISE_ADD;
    case GraphKind::kSubtract:
      return CUDNN_POINTWISE_SUB;
    case GraphKind::kDivide:
      return CUDNN_POINTWISE_DIV;
    case GraphKind::kExp:
      return CUDNN_POINTWISE_EXP;
    case GraphKind::kLog:
      return CUDNN_POINTWISE_LOG;
    case GraphKind::kRowNumber:
    case GraphKind::kColumnNumber:
      return CUDNN_POINTWISE_GEN_INDEX;
    case GraphKind::kAtLeast:
      return CUDNN_POINTWISE_CMP_GE;
    case GraphKind::kSelect:
      return CUDNN_POINTWISE_BINARY_SELECT;
    case GraphKind::kProduct:
    case GraphKind::kLargest:
    case GraphKind::kSum:
      break;  // Not element-wise.
  }
  return CUDNN_POINTWISE_IDENTITY;
}

class Builder {
 public:
  Builder(const CudnnApi& api, std::vector<CudnnDescriptor>& parts)
      : api_(api), parts_(parts) {}

  static int64_t ToId(size_t tensor) {
    return static_cast<int64_t>(tensor) + 1;
  }

  absl::StatusOr<cudnnBackendDescriptor_t> Graph(const AttentionGraph& graph,
                                                 cudnnHandle_t handle) {
    for (size_t i = 0; i < graph.tensors.size(); ++i) {
      RETURN_IF_ERROR(Tensor(graph.tensors[i], ToId(i)));
    }
    std::vector<cudnnBackendDescriptor_t> steps;
    for (const GraphStep& step : graph.steps) {
      ASSIGN_OR_RETURN(const cudnnBackendDescriptor_t made, Step(step));
      steps.push_back(made);
    }
    CudnnDescriptor whole(api_, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    whole.Set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
              static_cast<int64_t>(steps.size()), steps.data());
    if (handle != nullptr) {
      whole.Set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1,
                &handle);
    }
    return Keep(std::move(whole));
  }

  absl::StatusOr<cudnnBackendDescriptor_t> Keep(CudnnDescriptor descriptor) {
    RETURN_IF_ERROR(descriptor.Finalize());
    parts_.push_back(std::move(descriptor));
    return parts_.back().get();
  }

 private:
  absl::Status Tensor(const GraphTensor& tensor, int64_t id) {
    CudnnDescriptor d(api_, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    d.Set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
    d.Set(CUDNN_ATTR_TENSOR_DATA_TYPE, ToType(tensor.type));
    d.Set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4,
          tensor.sizes.data());
    d.Set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4,
          tensor.strides.data());
    d.Set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kAlignment);
    d.Set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, tensor.role == GraphRole::kWithin);
    d.Set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, tensor.role == GraphRole::kScalar);
    ASSIGN_OR_RETURN(const cudnnBackendDescriptor_t made, Keep(std::move(d)));
    tensors_.push_back(made);
    return absl::OkStatus();
  }

  absl::StatusOr<cudnnBackendDescriptor_t> Step(const GraphStep& step) {
    const auto in = [&](size_t i) { return tensors_.at(step.inputs.at(i)); };
    const cudnnBackendDescriptor_t out = tensors_.at(step.output);
    switch (step.kind) {
      case GraphKind::kProduct: {
        CudnnDescriptor how(api_, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
        how.Set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
        ASSIGN_OR_RETURN(const auto made, Keep(std::move(how)));
        CudnnDescriptor d(api_, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
        d.Set(CUDNN_ATTR_OPERATION_MATMUL_DESC, made);
        d.Set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, in(0));
        d.Set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, in(1));
        d.Set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, out);
        return Keep(std::move(d));
      }
      case GraphKind::kLargest:
      case GraphKind::kSum: {
        const cudnnReduceTensorOp_t what = step.kind == GraphKind::kSum
                                               ? CUDNN_REDUCE_TENSOR_ADD
                                               : CUDNN_REDUCE_TENSOR_MAX;
        CudnnDescriptor how(api_, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
        how.Set(CUDNN_ATTR_REDUCTION_OPERATOR,
                CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &what);
        how.Set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
        ASSIGN_OR_RETURN(const auto made, Keep(std::move(how)));
        CudnnDescriptor d(api_, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
        d.Set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, made);
        d.Set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, in(0));
        d.Set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, out);
        return Keep(std::move(d));
      }
      default:
        return ByElement(step);
    }
  }

  absl::StatusOr<cudnnBackendDescriptor_t> ByElement(const GraphStep& step) {
    const cudnnPointwiseMode_t mode = ToMode(step.kind);
    CudnnDescriptor how(api_, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    how.Set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    how.Set(CUDNN_ATTR_POINTWISE_MATH_PREC, step.kind == GraphKind::kAtLeast
                                                ? CUDNN_DATA_BOOLEAN
                                                : CUDNN_DATA_FLOAT);
    if (mode == CUDNN_POINTWISE_GEN_INDEX) {
      how.Set(CUDNN_ATTR_POINTWISE_AXIS,
              int64_t{step.kind == GraphKind::kRowNumber ? 2 : 3});
    }
    ASSIGN_OR_RETURN(const auto made, Keep(std::move(how)));
    CudnnDescriptor d(api_, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    d.Set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, made);
    constexpr std::array kInputs = {CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
                                    CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                                    CUDNN_ATTR_OPERATION_POINTWISE_TDESC};
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      d.Set(kInputs.at(i), tensors_.at(step.inputs[i]));
    }
    d.Set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, tensors_.at(step.output));
    return Keep(std::move(d));
  }

  const CudnnApi& api_;
  std::vector<CudnnDescriptor>& parts_;
  std::vector<cudnnBackendDescriptor_t> tensors_;
};

// Kernel configurations for `graph`, cuDNN's best first.
absl::StatusOr<std::vector<CudnnDescriptor>> OffersFor(
    const CudnnApi& api, cudnnBackendDescriptor_t graph,
    cudnnBackendDescriptor_t properties) {
  CudnnDescriptor question(api, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
  question.Set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  question.Set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  if (properties != nullptr) {
    question.Set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, properties);
  }
  RETURN_IF_ERROR(question.Finalize());
  std::vector<CudnnDescriptor> offers;
  std::vector<cudnnBackendDescriptor_t> places;
  for (int64_t i = 0; i < kOfferCountMax; ++i) {
    offers.emplace_back(api, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    RETURN_IF_ERROR(offers.back().status());
    places.push_back(offers.back().get());
  }
  int64_t count = 0;
  RETURN_IF_ERROR(
      api.ToStatus(api.get(question.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                           CUDNN_TYPE_BACKEND_DESCRIPTOR, kOfferCountMax,
                           &count, places.data()),
                   "choosing a kernel"));
  // Drops the descriptors that cuDNN did not fill.
  count = std::clamp<int64_t>(count, 0, kOfferCountMax);
  while (static_cast<int64_t>(offers.size()) > count) offers.pop_back();
  return offers;
}

}  // namespace

absl::StatusOr<CudnnPlan> CudnnPlan::Make(const CudnnApi& api,
                                          const AttentionGraph& graph,
                                          const CudnnTarget& target) {
  CudnnPlan plan(api);
  Builder builder(api, plan.parts_);
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    const GraphTensor& tensor = graph.tensors[i];
    if (tensor.role == GraphRole::kWithin) continue;
    plan.arguments_.push_back({Builder::ToId(i), tensor.role, tensor.value});
  }
  ASSIGN_OR_RETURN(const cudnnBackendDescriptor_t whole,
                   builder.Graph(graph, target.handle));
  cudnnBackendDescriptor_t properties = nullptr;
  if (target.handle == nullptr) {
    CudnnDescriptor d(api, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    d.Set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
          static_cast<int64_t>(target.properties.size()),
          target.properties.data());
    ASSIGN_OR_RETURN(properties, builder.Keep(std::move(d)));
  }
  ASSIGN_OR_RETURN(std::vector<CudnnDescriptor> offers,
                   OffersFor(api, whole, properties));
  absl::Status why = absl::NotFoundError("no cuDNN kernel for this attention");
  for (CudnnDescriptor& offer : offers) {
    CudnnDescriptor d(api, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    d.Set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, offer.get());
    if (target.handle != nullptr) {
      d.Set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1,
            &target.handle);
    } else {
      d.Set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, properties);
    }
    why = d.Finalize();
    if (!why.ok()) continue;
    int64_t count = 0;
    RETURN_IF_ERROR(
        api.ToStatus(api.get(d.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                             CUDNN_TYPE_INT64, 1, &count, &plan.scratch_bytes_),
                     "asking a plan for its scratch"));
    plan.parts_.push_back(std::move(offer));
    plan.parts_.push_back(std::move(d));
    return plan;
  }
  return why;
}

absl::Status CudnnPlan::Run(cudnnHandle_t handle,
                            absl::FunctionRef<void*(GraphRole)> memory_of,
                            void* scratch) const {
  std::vector<int64_t> ids;
  std::vector<const void*> places;
  for (const Argument& argument : arguments_) {
    ids.push_back(argument.id);
    places.push_back(argument.role == GraphRole::kScalar
                         ? &argument.value
                         : memory_of(argument.role));
  }
  CudnnDescriptor pack(*api_, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.Set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
           static_cast<int64_t>(ids.size()), ids.data());
  pack.Set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
           static_cast<int64_t>(places.size()), places.data());
  pack.Set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &scratch);
  RETURN_IF_ERROR(pack.Finalize());
  return api_->ToStatus(api_->execute(handle, parts_.back().get(), pack.get()),
                        "computing");
}

}  // namespace atl::engine::cuda
