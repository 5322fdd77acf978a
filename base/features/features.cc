#include "base/features/features.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace atl {
namespace {

using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

struct EnumBit {
  int number;
  uint64_t bit;
};

constexpr EnumBit kMergeRules[] = {
    {v1::MERGE_RULE_KIND_UNSPECIFIED, kMergeWeightedMean},
    {v1::MERGE_RULE_KIND_WEIGHTED_MEAN, kMergeWeightedMean},
    {v1::MERGE_RULE_KIND_RDA, kMergeRda},
    {v1::MERGE_RULE_KIND_NORM_CLIP, kMergeNormClip},
    {v1::MERGE_RULE_KIND_TRIMMED_MEAN, kMergeTrimmedMean},
    {v1::MERGE_RULE_KIND_MEDIAN, kMergeMedian},
    {v1::MERGE_RULE_KIND_CENTRED_CLIP, kMergeCentredClip},
    {v1::MERGE_RULE_KIND_KRUM, kMergeKrum},
    {v1::MERGE_RULE_KIND_MDA, kMergeMda},
};

constexpr EnumBit kCodecs[] = {
    {v1::CODEC_UNSPECIFIED, kCodecF32},
    {v1::CODEC_F32, kCodecF32},
    {v1::CODEC_BF16, kCodecBf16},
    {v1::CODEC_BF16_STOCHASTIC, kCodecBf16Stochastic},
    {v1::CODEC_INT8, kCodecInt8},
    {v1::CODEC_E3M0, kCodecE3m0},
    {v1::CODEC_TWO_BIT, kCodecTwoBit},
    {v1::CODEC_TOP_K, kCodecTopK},
};

constexpr EnumBit kOuterOptimizers[] = {
    {v1::OUTER_OPTIMIZER_KIND_UNSPECIFIED, kBasics},  // Refused elsewhere.
    {v1::OUTER_OPTIMIZER_KIND_SGD, kOuterSgd},
    {v1::OUTER_OPTIMIZER_KIND_MOMENTUM, kOuterMomentum},
    {v1::OUTER_OPTIMIZER_KIND_NESTEROV, kOuterNesterov},
    {v1::OUTER_OPTIMIZER_KIND_FEDAVG, kOuterFedavg},
    {v1::OUTER_OPTIMIZER_KIND_FEDAVGM, kOuterFedavgm},
    {v1::OUTER_OPTIMIZER_KIND_FEDADAM, kOuterFedadam},
    {v1::OUTER_OPTIMIZER_KIND_FEDYOGI, kOuterFedyogi},
    {v1::OUTER_OPTIMIZER_KIND_FEDADAGRAD, kOuterFedadagrad},
    {v1::OUTER_OPTIMIZER_KIND_DELAYED_NESTEROV, kOuterDelayedNesterov},
};

constexpr EnumBit kDurabilities[] = {
    {v1::DURABILITY_UNSPECIFIED, kDurabilityMachine},
    {v1::DURABILITY_MACHINE, kDurabilityMachine},
    {v1::DURABILITY_PROCESS, kDurabilityProcess},
    {v1::DURABILITY_ISLAND, kDurabilityIsland},
};

constexpr EnumBit kTimings[] = {
    {v1::TIMING_UNSPECIFIED, kBasics},  // Refused elsewhere.
    {v1::TIMING_STRICT, kTimingStrict},
    {v1::TIMING_ELASTIC, kTimingElastic},
};

constexpr EnumBit kFragmentSchedules[] = {
    {v1::FRAGMENT_SCHEDULE_UNSPECIFIED, kScheduleTogether},
    {v1::FRAGMENT_SCHEDULE_TOGETHER, kScheduleTogether},
    {v1::FRAGMENT_SCHEDULE_STAGGERED, kScheduleStaggered},
};

constexpr EnumBit kDataTypes[] = {
    {v1::DATA_TYPE_UNSPECIFIED, kBasics},
    {v1::DATA_TYPE_F32, kBasics},
};

constexpr EnumBit kTensorClasses[] = {
    {v1::TENSOR_CLASS_UNSPECIFIED, kBasics},
    {v1::TENSOR_CLASS_MATRIX, kBasics},
    {v1::TENSOR_CLASS_EMBEDDING, kBasics},
    {v1::TENSOR_CLASS_VECTOR, kBasics},
    {v1::TENSOR_CLASS_BUFFER, kTensorBuffer},
};

constexpr EnumBit kInitKinds[] = {
    {v1::INIT_KIND_UNSPECIFIED, kBasics},
    {v1::INIT_KIND_CONSTANT, kBasics},
    {v1::INIT_KIND_NORMAL, kBasics},
};

constexpr EnumBit kInnerOptimizers[] = {
    {v1::INNER_OPTIMIZER_KIND_UNSPECIFIED, kBasics},
    {v1::INNER_OPTIMIZER_KIND_SGD, kBasics},
    {v1::INNER_OPTIMIZER_KIND_ADAMW, kBasics},
};

constexpr EnumBit kComputeTypes[] = {
    {v1::COMPUTE_TYPE_UNSPECIFIED, kBasics},
    {v1::COMPUTE_TYPE_F32, kBasics},
    {v1::COMPUTE_TYPE_BF16, kBasics},
};

constexpr EnumBit kWeightings[] = {
    {v1::WEIGHTING_UNSPECIFIED, kBasics},
    {v1::WEIGHTING_TOKENS, kBasics},
    {v1::WEIGHTING_SAMPLES, kBasics},
    {v1::WEIGHTING_UNIFORM, kBasics},
    {v1::WEIGHTING_TOKENS_SQUARED_PER_STEP, kBasics},
};

constexpr EnumBit kDataFormats[] = {
    {v1::DATA_FORMAT_UNSPECIFIED, kBasics},
    {v1::DATA_FORMAT_BYTES, kBasics},
    {v1::DATA_FORMAT_LLMC, kBasics},
    {v1::DATA_FORMAT_UINT16, kBasics},
    {v1::DATA_FORMAT_EXTERNAL, kDataExternal},
};

constexpr EnumBit kDataOrders[] = {
    {v1::DATA_ORDER_UNSPECIFIED, kBasics},
    {v1::DATA_ORDER_BY_FILE, kDataByFile},
};

constexpr EnumBit kWeightUnitBits[] = {
    {v1::WEIGHT_UNIT_UNSPECIFIED, kBasics},
    {v1::WEIGHT_UNIT_TOKENS, kBasics},
    {v1::WEIGHT_UNIT_SAMPLES, kWeightUnits},
    {v1::WEIGHT_UNIT_STEPS, kWeightUnits},
};

// Only the coordinator reads it.
constexpr EnumBit kGuardActions[] = {
    {v1::GUARD_ACTION_UNSPECIFIED, kBasics},
    {v1::GUARD_ACTION_ALERT, kBasics},
    {v1::GUARD_ACTION_PAUSE, kBasics},
};

struct EnumBits {
  absl::string_view name;  // EnumDescriptor::name().
  absl::Span<const EnumBit> bits;
};

const EnumBits kEnums[] = {
    {"MergeRuleKind", kMergeRules},
    {"Codec", kCodecs},
    {"OuterOptimizerKind", kOuterOptimizers},
    {"Durability", kDurabilities},
    {"Timing", kTimings},
    {"FragmentSchedule", kFragmentSchedules},
    {"DataType", kDataTypes},
    {"TensorClass", kTensorClasses},
    {"InitKind", kInitKinds},
    {"InnerOptimizerKind", kInnerOptimizers},
    {"ComputeType", kComputeTypes},
    {"Weighting", kWeightings},
    {"DataFormat", kDataFormats},
    {"DataOrder", kDataOrders},
    {"WeightUnit", kWeightUnitBits},
    {"GuardAction", kGuardActions},
};

uint64_t FindBit(const EnumDescriptor& type, int number) {
  for (const EnumBits& known : kEnums) {
    if (known.name != type.name()) continue;
    for (const EnumBit& row : known.bits) {
      if (row.number == number) return row.bit;
    }
  }
  return kUnknown;
}

// The bits of every enum value in `message` and below; of an unset message
// those of its defaults.
uint64_t WalkEnums(const Message& message) {
  const Reflection& fields = *message.GetReflection();
  uint64_t bits = fields.GetUnknownFields(message).empty() ? 0 : kUnknown;
  for (int f = 0; f < message.GetDescriptor()->field_count(); ++f) {
    const FieldDescriptor* field = message.GetDescriptor()->field(f);
    const int count = field->is_repeated() ? fields.FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
        bits |= FindBit(*field->enum_type(),
                        field->is_repeated()
                            ? fields.GetRepeatedEnumValue(message, field, i)
                            : fields.GetEnumValue(message, field));
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        bits |= WalkEnums(field->is_repeated()
                              ? fields.GetRepeatedMessage(message, field, i)
                              : fields.GetMessage(message, field));
      } else {
        break;
      }
    }
  }
  return bits;
}

struct Name {
  uint64_t bit;
  absl::string_view text;
};

constexpr Name kNames[] = {
    {kMergeWeightedMean, "merge rule weighted_mean"},
    {kMergeRda, "merge rule rda"},
    {kMergeNormClip, "merge rule norm_clip"},
    {kMergeTrimmedMean, "merge rule trimmed_mean"},
    {kMergeMedian, "merge rule median"},
    {kMergeCentredClip, "merge rule centred_clip"},
    {kMergeKrum, "merge rule krum"},
    {kMergeMda, "merge rule mda"},
    {kCodecF32, "codec f32"},
    {kCodecBf16, "codec bf16"},
    {kCodecBf16Stochastic, "codec bf16_stochastic"},
    {kCodecInt8, "codec int8"},
    {kCodecE3m0, "codec e3m0"},
    {kCodecTwoBit, "codec two_bit"},
    {kCodecTopK, "codec top_k"},
    {kOuterSgd, "outer optimizer sgd"},
    {kOuterMomentum, "outer optimizer momentum"},
    {kOuterNesterov, "outer optimizer nesterov"},
    {kOuterFedavg, "outer optimizer fedavg"},
    {kOuterFedavgm, "outer optimizer fedavgm"},
    {kOuterFedadam, "outer optimizer fedadam"},
    {kOuterFedyogi, "outer optimizer fedyogi"},
    {kOuterFedadagrad, "outer optimizer fedadagrad"},
    {kOuterDelayedNesterov, "outer optimizer delayed_nesterov"},
    {kDurabilityMachine, "durability machine"},
    {kDurabilityProcess, "durability process"},
    {kDurabilityIsland, "durability island"},
    {kTimingStrict, "timing strict"},
    {kTimingElastic, "timing elastic"},
    {kScheduleTogether, "fragment schedule together"},
    {kScheduleStaggered, "fragment schedule staggered"},
    {kEager, "eager outer steps"},
    {kBasics, "the basics"},
    {kRunUid, "run uids"},
    {kLogPosition, "log positions"},
    {kDataExternal, "external models and data"},
    {kDataByFile, "data by URL"},
    {kWeightUnits, "weights by samples or steps"},
    {kTensorBuffer, "tensors of class buffer"},
    {kReportingHeartbeat, "heartbeats that report"},
    {kPlansOfChangedRuns, "plans of changed runs"},
    {kPlansOfChangedParts, "plans of changed parts"},
    {kUnknown, "a value or field of the run's spec that is newer than this "
               "program"},
};

}  // namespace

uint64_t ProgramFeatures() {
  return kBaseFeatures | kRunUid | kLogPosition | kDataExternal | kDataByFile |
         kWeightUnits | kTensorBuffer | kReportingHeartbeat |
         kPlansOfChangedRuns | kPlansOfChangedParts;
}

uint64_t PeerFeatures(uint64_t sent) {
  return sent == 0 ? kBaseFeatures : sent & ~kUnknown;
}

uint64_t RequiredFeatures(const v1::RunSpec& spec) {
  return WalkEnums(spec) | (spec.schedule().eager() ? kEager : 0);
}

std::string DescribeFeatures(uint64_t features) {
  std::vector<std::string> words;
  for (int i = 0; i < 64; ++i) {
    const uint64_t bit = uint64_t{1} << i;
    if ((features & bit) == 0) continue;
    std::string word = absl::StrCat("feature ", i);
    for (const Name& name : kNames) {
      if (name.bit == bit) word = std::string(name.text);
    }
    words.push_back(std::move(word));
  }
  return absl::StrJoin(words, ", ");
}

}  // namespace atl
