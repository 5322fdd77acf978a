// Reads the text of a join string that a person pastes.

#pragma once

#include <istream>
#include <ostream>
#include <string>

#include "absl/status/statusor.h"

namespace atl::cli {

// Where join strings come from. Both outlive this.
struct JoinInput {
  std::istream& stream;
  int terminal = -1;  // The stream's descriptor, if it is a terminal.
};

// The standard input.
JoinInput StandardJoinInput();

// The text, which may be no join string. A pipe is read to its end, or to 4096
// bytes.
//
// At a terminal the person is asked for it on `messages`, and it is not shown.
// A string may have several lines: it is read up to its checksum, or to the
// first line end at which no further text could make it a join string. The rest
// of what was pasted is dropped, so no shell reads it. Ctrl-D ends it.
//
// CANCELLED: the person pressed Ctrl-C. UNAVAILABLE: the terminal cannot be
// read.
absl::StatusOr<std::string> ReadJoinText(const JoinInput& input,
                                         std::ostream& messages);

}  // namespace atl::cli
