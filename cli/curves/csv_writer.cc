#include "cli/curves/csv_writer.h"

#include <algorithm>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/status/status_macros.h"
#include "base/time/proto_time.h"
#include "cli/output/error.h"

namespace atl::cli {
namespace {

constexpr absl::string_view kHeader =
    "commit_seq,version,fragment,time,tokens,tokens_per_second,training_loss,"
    "validation_loss,validation_commit_seq,gradient_norm,merged_islands,"
    "other_islands,bytes,collect_seconds,merge_seconds,run_uid\n";
// Columns before and after the evaluation's two.
constexpr size_t kBeginCount = 7;
constexpr size_t kEndCount = 7;

std::string Number(double value) { return absl::StrFormat("%.9g", value); }

std::string Seconds(const google::protobuf::Timestamp& from,
                    const google::protobuf::Timestamp& to) {
  const absl::Duration duration = FromProto(to) - FromProto(from);
  return absl::StrFormat("%.3f", absl::ToDoubleSeconds(duration));
}

std::string Time(const google::protobuf::Timestamp& time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", FromProto(time),
                          absl::UTCTimeZone());
}

// Cells, each with its comma.
template <typename Cells>
std::string Join(const Cells& cells) {
  return absl::StrCat(absl::StrJoin(cells, ","), ",");
}

}  // namespace

absl::StatusOr<std::unique_ptr<CsvWriter>> CsvWriter::Open(
    FileSystem& file_system, const std::string& path,
    const std::string& run_uid) {
  ASSIGN_OR_RETURN(std::unique_ptr<CurveFile> file,
                   CurveFile::Open(file_system, path));
  std::unique_ptr<CsvWriter> writer(new CsvWriter(std::move(file), run_uid));
  RETURN_IF_ERROR(writer->ReadWhatIsThere());
  return writer;
}

absl::Status CsvWriter::ReadWhatIsThere() {
  ASSIGN_OR_RETURN(const std::string bytes, file_->Read());
  const absl::string_view text = bytes;
  const absl::string_view whole = text.substr(0, text.rfind('\n') + 1);
  if (whole.empty() && kHeader.substr(0, text.size()) == text) {
    if (!text.empty()) RETURN_IF_ERROR(file_->Truncate(0));
    return file_->Append(kHeader);
  }
  if (whole.substr(0, kHeader.size()) != kHeader) {
    return WithReason(
        absl::FailedPreconditionError(absl::StrCat(
            file_->path(), ":1 is not the header that --csv writes; "
                                       "give another file")),
        "OTHER_FILE");
  }
  int64_t line = 1;
  size_t offset = kHeader.size();
  while (offset < whole.size()) {
    const size_t end = whole.find('\n', offset);
    row_offset_ = static_cast<int64_t>(offset);
    RETURN_IF_ERROR(ReadRow(whole.substr(offset, end - offset), ++line));
    offset = end + 1;
  }
  return whole.size() == text.size()
             ? absl::OkStatus()
             : file_->Truncate(static_cast<int64_t>(whole.size()));
}

absl::Status CsvWriter::ReadRow(absl::string_view row, int64_t line) {
  const std::vector<absl::string_view> cells = absl::StrSplit(row, ',');
  const auto fault = [&](absl::string_view reason, absl::string_view what) {
    return WithReason(absl::FailedPreconditionError(
                          absl::StrCat(file_->path(), ":", line, ": ", what)),
                      reason);
  };
  if (cells.size() != kBeginCount + 2 + kEndCount ||
      !absl::SimpleAtoi(cells[0], &commit_seq_)) {
    return fault("OTHER_FILE", "not a row of a file of --csv");
  }
  if (cells.back() != run_uid_) {
    return WithHint(fault("OTHER_RUN", absl::StrCat("a round of another run, ",
                                                    cells.back())),
                    "Give a file for each run.");
  }
  const absl::Span<const absl::string_view> all = cells;
  row_begin_ = Join(all.subspan(0, kBeginCount));
  row_end_ =
      absl::StrCat(absl::StrJoin(all.subspan(kBeginCount + 2), ","), "\n");
  row_.reset();
  row_is_restore_ = cells[1].empty();
  v1::Evaluation evaluation;
  double loss = 0;
  int64_t commit_seq = 0;
  if (absl::SimpleAtod(cells[kBeginCount], &loss) &&
      absl::SimpleAtoi(cells[kBeginCount + 1], &commit_seq)) {
    evaluation.set_loss(loss);
    evaluation.set_commit_seq(commit_seq);
    row_ = evaluation;
    evaluated_commit_seq_ = std::max(evaluated_commit_seq_, commit_seq);
  }
  return absl::OkStatus();
}

std::string CsvWriter::LastRow() const {
  return absl::StrCat(
      row_begin_, row_.has_value() ? Number(row_->loss()) : "", ",",
      row_.has_value() ? absl::StrCat(row_->commit_seq()) : "", ",", row_end_);
}

absl::Status CsvWriter::Add(const v1::Round& round,
                            std::optional<double> tokens_per_second) {
  if (round.commit_seq() <= commit_seq_) return absl::OkStatus();
  int64_t payload_bytes = 0;
  int merged_count = 0;
  for (const v1::RoundContribution& contribution : round.contributions()) {
    payload_bytes += contribution.payload_bytes();
    merged_count += contribution.outcome() == v1::OUTCOME_MERGED;
  }
  commit_seq_ = round.commit_seq();
  row_is_restore_ = false;
  row_offset_ = file_->size_bytes();
  row_begin_ = Join(std::vector<std::string>{
      absl::StrCat(round.commit_seq()), absl::StrCat(round.version()),
      absl::StrCat(round.fragment()), Time(round.commit_time()),
      absl::StrCat(round.merged_token_count()),
      tokens_per_second.has_value() ? Number(*tokens_per_second) : "",
      round.has_training_loss() ? Number(round.training_loss()) : ""});
  row_end_ = absl::StrCat(
      Number(round.outer_gradient_norm()), ",", merged_count, ",",
      round.contributions_size() - merged_count, ",", payload_bytes, ",",
      Seconds(round.open_time(), round.seal_time()), ",",
      Seconds(round.seal_time(), round.commit_time()), ",", run_uid_, "\n");
  row_ = std::exchange(next_, std::nullopt);
  return file_->Append(LastRow());
}

absl::Status CsvWriter::Add(const v1::Restore& restore) {
  if (restore.commit_seq() <= commit_seq_) return absl::OkStatus();
  commit_seq_ = restore.commit_seq();
  row_is_restore_ = true;
  row_offset_ = file_->size_bytes();
  row_.reset();
  next_.reset();
  return file_->Append(absl::StrCat(restore.commit_seq(), ",,,",
                                    Time(restore.time()), ",,,,,",
                                    restore.cut_commit_seq() - 1, ",,,,,,,",
                                    run_uid_, "\n"));
}

absl::Status CsvWriter::Add(const v1::Evaluation& evaluation) {
  if (evaluation.commit_seq() <= evaluated_commit_seq_) return absl::OkStatus();
  evaluated_commit_seq_ = evaluation.commit_seq();
  if (commit_seq_ == 0 || row_.has_value() || row_is_restore_) {
    next_ = evaluation;
    return absl::OkStatus();
  }
  row_ = evaluation;
  return file_->Replace(row_offset_, LastRow());
}

}  // namespace atl::cli
