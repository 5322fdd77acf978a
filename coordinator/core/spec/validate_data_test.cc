#include "coordinator/core/spec/validate_spec.h"

#include <string>
#include <vector>

#include "coordinator/core/testing/run_simulation.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

v1::RunSpec UrlSpec() {
  v1::RunSpec spec = SimpleSpec();
  v1::DataSpec& data = *spec.mutable_data();
  data.Clear();
  data.set_format(v1::DATA_FORMAT_LLMC);
  data.set_url("s3://bucket/tokens/manifest.json");
  data.set_order(v1::DATA_ORDER_BY_FILE);
  data.set_fingerprint(std::string(64, 'a'));
  data.set_data_shard_count(spec.schedule().island_count_min());
  spec.mutable_evaluation()->set_every_round_count(1);
  spec.mutable_evaluation()->set_batch_count(1);
  return spec;
}

std::vector<std::string> Refused(const v1::RunSpec& spec) {
  std::vector<std::string> fields;
  for (const FieldViolation& violation : ValidateSpec(spec)) {
    fields.push_back(violation.field);
  }
  return fields;
}

TEST(ValidateDataTest, TakesDataByUrl) {
  EXPECT_THAT(Refused(UrlSpec()), IsEmpty());
  for (const char* url :
       {"https://host/manifest.json", "https://host:8443/a/manifest.json",
        "s3://bucket/a@b/manifest.json", "file:///srv/manifest.json",
        "http://127.0.0.1:8000/manifest.json", "http://localhost/manifest.json",
        "http://[::1]:80/manifest.json"}) {
    v1::RunSpec spec = UrlSpec();
    spec.mutable_data()->set_url(url);
    EXPECT_THAT(Refused(spec), IsEmpty()) << url;
  }
}

TEST(ValidateDataTest, RefusesUrlsThatIslandsCannotUseOrThatAreSecrets) {
  for (const std::string& url :
       {std::string("ftp://host/manifest.json"), std::string("manifest.json"),
        std::string("s3://bucket"), std::string("https:///manifest.json"),
        std::string("file://srv/manifest.json"),
        std::string("https://anna:secret@host/manifest.json"),
        std::string("https://host/manifest.json?X-Amz-Signature=1"),
        std::string("https://host/manifest.json#a"),
        std::string("https://host/a b/manifest.json"),
        std::string("https://host/\n"), std::string("http://host/m.json"),
        std::string("http://127.0.0.1.evil.org/m.json"),
        "s3://bucket/" + std::string(4096, 'a')}) {
    v1::RunSpec spec = UrlSpec();
    spec.mutable_data()->set_url(url);
    EXPECT_THAT(Refused(spec), ElementsAre("spec.data.url")) << url;
  }
}

TEST(ValidateDataTest, SaysWhatDoesNotGoWithAUrl) {
  v1::RunSpec spec = UrlSpec();
  spec.mutable_data()->set_path("/srv");
  spec.mutable_data()->clear_order();
  spec.mutable_data()->clear_fingerprint();
  spec.mutable_data()->set_validation_fraction(0.1);
  spec.mutable_data()->set_seed(1);
  EXPECT_THAT(
      Refused(spec),
      ElementsAre("spec.data.path", "spec.data.order", "spec.data.fingerprint",
                  "spec.data.validation_fraction", "spec.data.seed"));
}

TEST(ValidateDataTest, OnlyAManifestHasAnOrderOfFiles) {
  v1::RunSpec spec = UrlSpec();
  spec.mutable_data()->clear_url();
  spec.mutable_evaluation()->set_every_round_count(0);
  EXPECT_THAT(Refused(spec), ElementsAre("spec.data.order"));
  spec.mutable_data()->clear_order();
  EXPECT_THAT(Refused(spec), IsEmpty());
}

}  // namespace
}  // namespace atl::coordinator
