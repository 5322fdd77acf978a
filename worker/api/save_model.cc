#include "worker/api/save_model.h"

#include "absl/strings/str_cat.h"
#include "base/io/posix_file_system.h"
#include "base/layout/layout.h"
#include "base/status/status_macros.h"
#include "worker/checkpoint/checkpoint.h"

namespace atl::worker {

absl::StatusOr<std::string> SaveModel(const v1::RunSpec& spec,
                                      absl::Span<const float> parameters,
                                      const std::string& directory) {
  ASSIGN_OR_RETURN(const RunLayout layout, RunLayout::Create(spec.layout()));
  if (static_cast<int64_t>(parameters.size()) != layout.element_count()) {
    return absl::InvalidArgumentError(
        absl::StrCat("there are ", parameters.size(), " parameters, not ",
                     layout.element_count()));
  }
  ASSIGN_OR_RETURN(
      const CheckpointFiles files,
      WriteCheckpoint(PosixFileSystem(), directory, spec.model(), spec.layout(),
                      parameters, CheckpointSource{}));
  return files.parameters_sha256;
}

}  // namespace atl::worker
