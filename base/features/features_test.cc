#include "base/features/features.h"

#include <set>
#include <string>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "gtest/gtest.h"

namespace atl {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// A value that no enum has.
constexpr int kNewerValue = 999;

// Calls visit(message, field) for every enum field at `message` and below, in
// messages that it makes.
template <typename Visit>
void ForEachEnumField(Message& message, const Visit& visit) {
  const Descriptor* type = message.GetDescriptor();
  for (int f = 0; f < type->field_count(); ++f) {
    const FieldDescriptor* field = type->field(f);
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
      visit(message, field);
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      const auto* fields = message.GetReflection();
      ForEachEnumField(field->is_repeated()
                           ? *fields->AddMessage(&message, field)
                           : *fields->MutableMessage(&message, field),
                       visit);
    }
  }
}

void SetEnum(Message& message, const FieldDescriptor* field, int number) {
  const auto* fields = message.GetReflection();
  fields->ClearField(&message, field);
  if (field->is_repeated()) {
    fields->AddEnumValue(&message, field, number);
  } else {
    fields->SetEnumValue(&message, field, number);
  }
}

TEST(FeaturesTest, EveryEnumValueOfASpecHasABitThatThisProgramHas) {
  v1::RunSpec spec;
  int count = 0;
  ForEachEnumField(spec, [&](Message& message, const FieldDescriptor* field) {
    const EnumDescriptor* values = field->enum_type();
    for (int i = 0; i < values->value_count(); ++i) {
      SetEnum(message, field, values->value(i)->number());
      const uint64_t required = RequiredFeatures(spec);
      EXPECT_EQ(required & ~ProgramFeatures(), 0u)
          << "give " << values->value(i)->full_name()
          << " a bit and a row in base/features/features.cc";
      ++count;
    }
    message.GetReflection()->ClearField(&message, field);
  });
  EXPECT_GT(count, 50);
}

TEST(FeaturesTest, AnEnumValueThatThisProgramDoesNotKnowIsRefused) {
  v1::RunSpec spec;
  ForEachEnumField(spec, [&](Message& message, const FieldDescriptor* field) {
    SetEnum(message, field, kNewerValue);
    EXPECT_NE(RequiredFeatures(spec) & kUnknown, 0u) << field->full_name();
    message.GetReflection()->ClearField(&message, field);
    EXPECT_EQ(RequiredFeatures(spec) & kUnknown, 0u) << field->full_name();
  });
  EXPECT_EQ(ProgramFeatures() & kUnknown, 0u);
  EXPECT_EQ(PeerFeatures(~uint64_t{0}) & kUnknown, 0u);
}

TEST(FeaturesTest, AFieldThatThisProgramDoesNotKnowIsRefused) {
  v1::RunSpec spec;
  auto* schedule = spec.mutable_schedule();
  schedule->GetReflection()->MutableUnknownFields(schedule)->AddVarint(900, 1);
  EXPECT_NE(RequiredFeatures(spec) & kUnknown, 0u);
}

TEST(FeaturesTest, TheValuesOfMergeCodecOptimizerAndDurabilityHaveOwnBits) {
  v1::RunSpec spec;
  const std::set<std::string> own = {"MergeRuleKind", "Codec",
                                     "OuterOptimizerKind", "Durability",
                                     "Timing", "FragmentSchedule"};
  std::set<std::string> seen;
  ForEachEnumField(spec, [&](Message& message, const FieldDescriptor* field) {
    const EnumDescriptor* values = field->enum_type();
    if (own.count(std::string(values->name())) == 0) return;
    seen.insert(std::string(values->name()));
    std::set<uint64_t> bits;
    for (int i = 1; i < values->value_count(); ++i) {
      SetEnum(message, field, values->value(i)->number());
      bits.insert(RequiredFeatures(spec));
    }
    EXPECT_EQ(static_cast<int>(bits.size()), values->value_count() - 1)
        << field->full_name();
    message.GetReflection()->ClearField(&message, field);
  });
  EXPECT_EQ(seen, own);
}

TEST(FeaturesTest, ASpecNeedsWhatItsUnspecifiedValuesMean) {
  const uint64_t required = RequiredFeatures(v1::RunSpec());
  EXPECT_EQ(required, kMergeWeightedMean | kCodecF32 | kDurabilityMachine |
                          kScheduleTogether | kBasics);
  v1::RunSpec spec;
  spec.mutable_schedule()->set_eager(true);
  EXPECT_EQ(RequiredFeatures(spec), required | kEager);
}

TEST(FeaturesTest, OnlyExternalDataNeedsAProgramThatKnowsIt) {
  v1::RunSpec spec;
  spec.mutable_data()->set_format(v1::DATA_FORMAT_UINT16);
  EXPECT_EQ(RequiredFeatures(spec) & kDataExternal, 0u);
  spec.mutable_data()->set_format(v1::DATA_FORMAT_EXTERNAL);
  EXPECT_EQ(RequiredFeatures(spec) & ~PeerFeatures(0), kDataExternal);
  EXPECT_EQ(DescribeFeatures(kDataExternal), "external models and data");
}

TEST(FeaturesTest, OnlyDataByUrlNeedsAProgramThatKnowsIt) {
  v1::RunSpec spec;
  EXPECT_EQ(RequiredFeatures(spec) & kDataByFile, 0u);
  spec.mutable_data()->set_order(v1::DATA_ORDER_BY_FILE);
  EXPECT_EQ(RequiredFeatures(spec) & ~PeerFeatures(0), kDataByFile);
}

TEST(FeaturesTest, OnlyWeightsByAnotherUnitThanTokensNeedAProgramThatKnowsIt) {
  v1::RunSpec spec;
  spec.set_weight_unit(v1::WEIGHT_UNIT_TOKENS);
  EXPECT_EQ(RequiredFeatures(spec) & kWeightUnits, 0u);
  spec.set_weight_unit(v1::WEIGHT_UNIT_STEPS);
  EXPECT_EQ(RequiredFeatures(spec) & ~PeerFeatures(0), kWeightUnits);
}

TEST(FeaturesTest, APeerThatSendsNothingHasTheFeaturesOfBeforeThereWereBits) {
  EXPECT_EQ(PeerFeatures(0), kBaseFeatures);
  EXPECT_EQ(PeerFeatures(kCodecF32), kCodecF32);
  EXPECT_EQ(PeerFeatures(0) & (kRunUid | kLogPosition), 0u);
  EXPECT_EQ(ProgramFeatures() & kBaseFeatures, kBaseFeatures);
}

TEST(FeaturesTest, NamesEveryBitInWords) {
  EXPECT_EQ(DescribeFeatures(0), "");
  EXPECT_EQ(DescribeFeatures(kMergeMda | kCodecTopK),
            "merge rule mda, codec top_k");
  EXPECT_EQ(DescribeFeatures(uint64_t{1} << 50), "feature 50");
  EXPECT_EQ(DescribeFeatures(ProgramFeatures() | kUnknown).find("feature "),
            std::string::npos);
}

}  // namespace
}  // namespace atl
