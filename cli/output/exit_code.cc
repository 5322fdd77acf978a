#include "cli/output/exit_code.h"

#include <optional>

#include "cli/output/error.h"

namespace atl::cli {

ExitCode ToExitCode(const absl::Status& status) {
  if (std::optional<ExitCode> code = GetExitCode(status)) return *code;
  if (IsHandshakeFailure(status)) return ExitCode::kForbidden;
  return CodeToExitCode(status.code());
}

}  // namespace atl::cli
