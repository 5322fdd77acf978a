#include "base/features/features.h"

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace atl {
namespace {

using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Values of an enum and their bits.
struct EnumBits {
  absl::string_view type;   // EnumDescriptor::name().
  absl::string_view words;  // Set: each value has a bit of its own, in order.
  int begin, end;           // The values' numbers.
  uint64_t bit;             // The first value's, or that of all.
};

constexpr EnumBits kEnums[] = {
    {"MergeRuleKind", "", 0, 1, kMergeWeightedMean},
    {"MergeRuleKind", "merge rule", 1, 9, kMergeWeightedMean},
    {"Codec", "", 0, 1, kCodecF32},
    {"Codec", "codec", 1, 8, kCodecF32},
    {"OuterOptimizerKind", "", 0, 1, kBasics},  // Refused elsewhere.
    {"OuterOptimizerKind", "outer optimizer", 1, 10, kOuterSgd},
    {"Durability", "", 0, 1, kDurabilityMachine},
    {"Durability", "durability", 1, 4, kDurabilityMachine},
    {"Timing", "", 0, 1, kBasics},  // Refused elsewhere.
    {"Timing", "timing", 1, 3, kTimingStrict},
    {"FragmentSchedule", "", 0, 1, kScheduleTogether},
    {"FragmentSchedule", "fragment schedule", 1, 3, kScheduleTogether},
    {"DataType", "", 0, 2, kBasics},
    {"TensorClass", "", 0, 4, kBasics},
    {"TensorClass", "", 4, 5, kTensorBuffer},
    {"InitKind", "", 0, 3, kBasics},
    {"InnerOptimizerKind", "", 0, 3, kBasics},
    {"ComputeType", "", 0, 3, kBasics},
    {"Weighting", "", 0, 5, kBasics},
    {"DataFormat", "", 0, 4, kBasics},
    {"DataFormat", "", 4, 5, kDataExternal},
    {"DataOrder", "", 0, 1, kBasics},
    {"DataOrder", "", 1, 2, kDataByFile},
    {"WeightUnit", "", 0, 2, kBasics},
    {"WeightUnit", "", 2, 4, kWeightUnits},
    {"GuardAction", "", 0, 3, kBasics},  // Only the coordinator reads it.
};

uint64_t FindBit(const EnumDescriptor& type, int number) {
  for (const EnumBits& row : kEnums) {
    if (row.type == type.name() && number >= row.begin && number < row.end) {
      return row.words.empty() ? row.bit : row.bit << (number - row.begin);
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
    {kReportsOfChanges, "reports of changes"},
    {kPlansOfChangedParts, "plans of changed parts"},
    {kUnknown, "a value or field of the run's spec that is newer than this "
               "program"},
};

// A new value needs a row with a bit of its own.
constexpr bool HasEachBitOnce() {
  uint64_t taken = 0;
  for (const Name& name : kNames) taken |= name.bit;
  for (const EnumBits& row : kEnums) {
    if (row.words.empty()) continue;
    for (int number = row.begin; number < row.end; ++number) {
      const uint64_t bit = row.bit << (number - row.begin);
      if ((taken & bit) != 0) return false;
      taken |= bit;
    }
  }
  return true;
}
static_assert(HasEachBitOnce());

// The words for a bit: "merge rule mda".
std::string DescribeBit(uint64_t bit) {
  for (const Name& name : kNames) {
    if (name.bit == bit) return std::string(name.text);
  }
  for (const EnumBits& row : kEnums) {
    if (row.words.empty()) continue;
    const EnumDescriptor* type =
        v1::RunSpec::descriptor()->file()->FindEnumTypeByName(
            std::string(row.type));
    absl::string_view prefix = type->value(0)->name();
    absl::ConsumeSuffix(&prefix, "UNSPECIFIED");
    for (int number = row.begin; number < row.end; ++number) {
      if (row.bit << (number - row.begin) != bit) continue;
      return absl::StrCat(row.words, " ",
                          absl::AsciiStrToLower(absl::StripPrefix(
                              type->FindValueByNumber(number)->name(), prefix)));
    }
  }
  return "";
}

}  // namespace

uint64_t ProgramFeatures() {
  return kBaseFeatures | kRunUid | kLogPosition | kDataExternal | kDataByFile |
         kWeightUnits | kTensorBuffer | kReportingHeartbeat |
         kPlansOfChangedRuns | kReportsOfChanges | kPlansOfChangedParts;
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
    const std::string word = DescribeBit(bit);
    words.push_back(word.empty() ? absl::StrCat("feature ", i) : word);
  }
  return absl::StrJoin(words, ", ");
}

}  // namespace atl
