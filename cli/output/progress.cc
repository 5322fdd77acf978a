#include "cli/output/progress.h"

#include <algorithm>

#include "absl/time/clock.h"
#include "cli/output/table.h"

namespace atl::cli {
namespace {

constexpr absl::string_view kEraseLine = "\r\x1b[2K";

}  // namespace

void Progress::Update(absl::string_view line, absl::Time now) {
  MutexLock lock(&mutex_);
  line_ = Printable(line);
  if (options_.live) {
    Draw();
    return;
  }
  if (line_ == printed_ || now - printed_time_ < options_.interval) return;
  stream_ << line_ << "\n" << std::flush;
  printed_ = line_;
  printed_time_ = now;
}

void Progress::Note(absl::string_view line) {
  MutexLock lock(&mutex_);
  if (drawn_) stream_ << kEraseLine;
  drawn_ = false;
  stream_ << Printable(line) << "\n" << std::flush;
  if (options_.live && !line_.empty()) Draw();
}

void Progress::Clear() {
  MutexLock lock(&mutex_);
  if (drawn_) {
    stream_ << kEraseLine << std::flush;
    drawn_ = false;
  }
  if (!options_.live && !line_.empty() && line_ != printed_) {
    stream_ << line_ << "\n" << std::flush;
    printed_ = line_;
  }
  line_.clear();
}

void Progress::Draw() {
  const size_t columns = std::max(options_.columns - 1, 10);
  stream_ << kEraseLine << line_.substr(0, columns) << std::flush;
  drawn_ = true;
}

std::function<void(const std::string&)> ShowAfterASecond(Progress& progress) {
  return [&progress, begin = absl::Now()](const std::string& line) {
    const absl::Time now = absl::Now();
    if (now - begin >= absl::Seconds(1)) progress.Update(line, now);
  };
}

}  // namespace atl::cli
