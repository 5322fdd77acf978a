// Writes curves as a CSV file (RFC 4180, lines end with "\n"): a header, then
// one row for each committed round, in the order of commits.
// Thread-compatible.
//
// | column                | contents                                         |
// | --------------------- | ------------------------------------------------ |
// | commit_seq            | place in the run's order                         |
// | version, fragment     | the version that it made                         |
// | time                  | of the commit, RFC 3339 in UTC                   |
// | tokens                | merged tokens after the commit                   |
// | tokens_per_second     | merged since the commit before                   |
// | training_loss         | mean over its islands, nats per token            |
// | validation_loss       | newest evaluation that no row before has         |
// | validation_commit_seq | the cut that was evaluated                       |
// | gradient_norm         | of the merged outer gradient                     |
// | merged_islands        | contributions that were merged                   |
// | other_islands         | contributions that ended otherwise               |
// | bytes                 | encoded bytes of all contributions               |
// | collect_seconds       | from the round's OPEN to its SEAL                |
// | merge_seconds         | from SEAL to COMMIT                              |
// | run_uid               | of the run                                       |
//
// A row without a version is a restore: rows before it, after the commit in its
// validation_commit_seq, are no longer part of the run.
//
// A cell is empty if its value is not known. An evaluation follows its commit,
// so it fills the cells of the row that is the last one at that moment.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "atoll/v1/run.pb.h"
#include "atoll/v1/training_state_service.pb.h"
#include "base/io/file_system.h"
#include "cli/curves/curve_file.h"

namespace atl::cli {

class CsvWriter {
 public:
  // Continues the run's file, or makes it. A last row that is torn is cut off.
  // `file_system` outlives this.
  //
  // FAILED_PRECONDITION: the file is no such file, has the rounds of another
  // run, or another process writes it. Others: as the file system's.
  static absl::StatusOr<std::unique_ptr<CsvWriter>> Open(
      FileSystem& file_system, const std::string& path,
      const std::string& run_uid);

  const std::string& path() const { return file_->path(); }

  // Appends a row, unless the file has that round or a later one. Errors as
  // the file system's.
  absl::Status Add(const v1::Round& round,
                   std::optional<double> tokens_per_second);

  // Appends the row of a restore, unless the file has it or a later one.
  absl::Status Add(const v1::Restore& restore);

  // Fills the cells of the last row, or keeps the evaluation for the next row
  // if they are taken. One that the file has, or an older one, is dropped.
  absl::Status Add(const v1::Evaluation& evaluation);

 private:
  CsvWriter(std::unique_ptr<CurveFile> file, std::string run_uid)
      : file_(std::move(file)), run_uid_(std::move(run_uid)) {}

  absl::Status ReadWhatIsThere();
  // Reads a row of the file; errors name its line.
  absl::Status ReadRow(absl::string_view row, int64_t line);
  // The last row with its evaluation.
  std::string LastRow() const;

  const std::unique_ptr<CurveFile> file_;
  const std::string run_uid_;
  int64_t commit_seq_ = 0;              // The last row's.
  int64_t row_offset_ = 0;              // Offset of the last row in the file.
  std::string row_begin_, row_end_;     // Around the evaluation's cells.
  bool row_is_restore_ = false;         // The last row's.
  std::optional<v1::Evaluation> row_;   // The last row's evaluation.
  std::optional<v1::Evaluation> next_;  // The evaluation for the next row.
  int64_t evaluated_commit_seq_ = 0;    // The newest in the file or in next_.
};

}  // namespace atl::cli
