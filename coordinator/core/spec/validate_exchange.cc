#include "coordinator/core/spec/validate_spec.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace atl::coordinator {
namespace {

// Codecs that lose so much of a gradient that it must be sent later.
bool NeedsFeedback(v1::Codec codec) {
  return codec == v1::CODEC_TWO_BIT || codec == v1::CODEC_TOP_K;
}

bool IsF32(v1::Codec codec) {
  return codec == v1::CODEC_UNSPECIFIED || codec == v1::CODEC_F32;
}

// The first buffer; nullptr if the layout has no buffers.
const v1::TensorSpec* FindBuffer(const v1::Layout& layout) {
  for (const v1::TensorSpec& tensor : layout.tensors()) {
    if (tensor.tensor_class() == v1::TENSOR_CLASS_BUFFER) return &tensor;
  }
  return nullptr;
}

}  // namespace

void CheckExchange(const v1::RunSpec& spec,
                   std::vector<FieldViolation>& violations) {
  const v1::ExchangeSpec& exchange = spec.exchange();
  const auto require = [&](bool holds, absl::string_view field,
                           absl::string_view description) {
    if (holds) return;
    violations.push_back(
        {absl::StrCat("spec.", field), std::string(description)});
  };
  require(v1::Codec_IsValid(exchange.up()), "exchange.up",
          "must be one of the codecs of this program");
  // Any codec works: the loss of one version stays in theta - replica and is
  // part of the next version's difference.
  require(v1::Codec_IsValid(exchange.down()), "exchange.down",
          "must be one of the codecs of this program");
  if (exchange.error_feedback()) {
    require(!IsF32(exchange.up()), "exchange.error_feedback",
            "must be false: exchange.up is F32, which is exact");
    const double fraction = spec.schedule().sample_fraction();
    require(fraction == 0 || fraction == 1, "exchange.error_feedback",
            "must be false with client sampling (schedule.sample_fraction < "
            "1): an island's residual would wait until the island is sampled "
            "again, and be outdated by then");
    const double decay = exchange.error_feedback_decay();
    // Also refuses NaN.
    require(decay >= 0 && decay <= 1, "exchange.error_feedback_decay",
            absl::StrCat("is ", decay, "; must be in (0, 1]; 0 means 1"));
  } else {
    require(!NeedsFeedback(exchange.up()), "exchange.error_feedback",
            "must be true: exchange.up loses so much of an outer gradient "
            "that the run converges only if the loss is sent later");
    require(exchange.error_feedback_decay() == 0,
            "exchange.error_feedback_decay",
            "only exchange.error_feedback reads it: leave it 0");
  }
  const v1::MergeRuleKind rule = spec.outer().merge().rule();
  require(exchange.up() != v1::CODEC_TOP_K ||
              (rule != v1::MERGE_RULE_KIND_MEDIAN &&
               rule != v1::MERGE_RULE_KIND_TRIMMED_MEAN),
          "outer.merge.rule",
          "must not be MEDIAN or TRIMMED_MEAN with exchange.up TOP_K: most "
          "contributions are 0 at most elements, and so would be the merge");
  // The error of a codec, or of a late contribution, may make a running
  // variance negative.
  const v1::TensorSpec* const buffer = FindBuffer(spec.layout());
  if (buffer == nullptr) return;
  const std::string why =
      absl::StrCat("must be F32: tensor \"", buffer->name(),
                   "\" is a buffer, and a variance that lost bits may be "
                   "negative; or leave buffers out of the layout");
  require(IsF32(exchange.up()), "exchange.up", why);
  require(IsF32(exchange.down()), "exchange.down", why);
  require(spec.schedule().max_staleness() == 0, "schedule.max_staleness",
          absl::StrCat("must be 0: tensor \"", buffer->name(),
                       "\" is a buffer, and late contributions have no mean; "
                       "or leave buffers out of the layout"));
}

}  // namespace atl::coordinator
