#include "worker/api/run_data.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"
#include "worker/data/batch_reader.h"
#include "worker/data/by_file_data_set.h"
#include "worker/data/data_set.h"
#include "worker/data/manifest.h"

namespace atl::worker {

absl::Status CompleteDataByUrl(v1::RunSpec& spec,
                               const StoreOpener& open_store) {
  v1::DataSpec& data = *spec.mutable_data();
  ASSIGN_OR_RETURN(Manifest manifest, ReadManifest(data.url(), open_store));
  if (data.format() == v1::DATA_FORMAT_UNSPECIFIED) {
    data.set_format(manifest.format);
  }
  // Reads no file, so it needs no source.
  ASSIGN_OR_RETURN(std::unique_ptr<DataSet> data_set,
                   MakeByFileDataSet(data, std::move(manifest), nullptr));
  ASSIGN_OR_RETURN(*data.mutable_fingerprint(), data_set->Fingerprint());
  ASSIGN_OR_RETURN(const BatchReader reader,
                   BatchReader::Create(std::move(data_set), spec));
  const int64_t held_out = reader.data_set().validation().size();
  if (spec.evaluation().every_round_count() > 0 &&
      held_out <= spec.model().sequence_length()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the manifest holds out ", held_out,
        " tokens, less than one window, but the run evaluates on them: publish "
        "with more held out (--held-out), or set evaluation.every_round_count "
        "= 0"));
  }
  return absl::OkStatus();
}

absl::StatusOr<LocalData> LookAtLocalData(v1::DataSpec data,
                                          const std::string& path) {
  if (data.data_shard_count() < 1) data.set_data_shard_count(1);
  DataOptions options;
  options.path = path;
  ASSIGN_OR_RETURN(const std::unique_ptr<DataSet> found,
                   OpenData(data, options));
  LocalData local = {.token_count = found->token_count()};
  if (data.fingerprint().empty() ||
      local.token_count > DataSet::kHeldBytesMax) {
    return local;
  }
  ASSIGN_OR_RETURN(const std::string fingerprint, found->Fingerprint());
  if (fingerprint != data.fingerprint()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the data at \"", path, "\" is not the run's: its fingerprint is ",
        fingerprint, ", the run's is ", data.fingerprint()));
  }
  local.is_compared = true;
  return local;
}

}  // namespace atl::worker
