#include "worker/api/tokenize.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "atoll/v1/run.pb.h"
#include "base/io/files.h"
#include "base/io/posix_file_system.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "worker/data/data_files.h"
#include "worker/data/token_file.h"

namespace atl::worker {
namespace {

constexpr int64_t kPartBytes = int64_t{1} << 20;
constexpr const char* kDocumentTokens[] = {"<|endoftext|>", "<|end_of_text|>"};

// The id before each file, -1 for none; sets `name`.
absl::StatusOr<int32_t> DocumentToken(const Tokenizer& tokenizer,
                                      const std::optional<std::string>& wanted,
                                      std::string& name) {
  if (wanted.has_value()) {
    name = *wanted;
    if (name.empty()) return -1;
    const int32_t id = tokenizer.AddedTokenId(name);
    if (id >= 0) return id;
    return absl::InvalidArgumentError(
        absl::StrCat("\"", name,
                     "\" is not an added token of the tokenizer: name "
                     "one of its added_tokens, or \"\" for none"));
  }
  for (const char* candidate : kDocumentTokens) {
    const int32_t id = tokenizer.AddedTokenId(candidate);
    if (id < 0) continue;
    name = candidate;
    return id;
  }
  return -1;
}

class Job {
 public:
  Job(const TokenizeOptions& options, const Tokenizer& tokenizer,
      TokenFileWriter& writer, int64_t bytes_in_all)
      : options_(options),
        tokenizer_(tokenizer),
        writer_(writer),
        bytes_in_all_(bytes_in_all) {}

  absl::Status Encode(const DataFile& file) {
    ASSIGN_OR_RETURN(const std::unique_ptr<RandomAccessFile> in,
                     PosixFileSystem().OpenForRead(file.path));
    std::string text;  // Read but not encoded.
    int64_t read = 0;
    while (read < file.size_bytes || !text.empty()) {
      if (options_.stop.stop_requested()) {
        return absl::CancelledError("tokenizing was stopped");
      }
      const int64_t count = std::min(kPartBytes, file.size_bytes - read);
      const size_t old = text.size();
      text.resize(old + count);
      ASSIGN_OR_RETURN(
          const int64_t got,
          in->ReadAt(read, absl::MakeSpan(text.data() + old, count)));
      if (got < count) {
        return absl::DataLossError("the file got shorter while it was read");
      }
      read += count;
      const size_t whole = read == file.size_bytes
                               ? text.size()
                               : tokenizer_.WholePieces(text);
      RETURN_IF_ERROR(writer_.Append(
          tokenizer_.Encode(absl::string_view(text).substr(0, whole))));
      text.erase(0, whole);
      if (options_.on_progress) {
        options_.on_progress(done_ + read, bytes_in_all_);
      }
    }
    done_ += file.size_bytes;
    return absl::OkStatus();
  }

 private:
  const TokenizeOptions& options_;
  const Tokenizer& tokenizer_;
  TokenFileWriter& writer_;
  const int64_t bytes_in_all_;
  int64_t done_ = 0;
};

}  // namespace

absl::StatusOr<Tokenizer> ReadTokenizer(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(PosixFileSystem(), path));
  absl::StatusOr<Tokenizer> tokenizer = absl::EndsWith(path, ".tiktoken")
                                            ? Tokenizer::FromTiktoken(text)
                                            : Tokenizer::FromJson(text);
  if (tokenizer.ok()) return tokenizer;
  return Annotate(tokenizer.status(), path);
}

absl::StatusOr<TokenizeResult> Tokenize(const TokenizeOptions& options) {
  ASSIGN_OR_RETURN(const Tokenizer tokenizer, ReadTokenizer(options.tokenizer));
  TokenizeResult result;
  ASSIGN_OR_RETURN(const int32_t document_token,
                   DocumentToken(tokenizer, options.document_token,
                                 result.document_token));
  ASSIGN_OR_RETURN(const std::vector<DataFile> files,
                   ListDataFiles(options.input, v1::DATA_FORMAT_BYTES));
  for (const DataFile& file : files) result.input_bytes += file.size_bytes;
  ASSIGN_OR_RETURN(const std::unique_ptr<TokenFileWriter> writer,
                   TokenFileWriter::Create(PosixFileSystem(), options.output,
                                           tokenizer.vocab_size()));
  Job job(options, tokenizer, *writer, result.input_bytes);
  for (const DataFile& file : files) {
    if (document_token >= 0) RETURN_IF_ERROR(writer->Append({document_token}));
    RETURN_IF_ERROR(Annotate(job.Encode(file), file.path));
  }
  RETURN_IF_ERROR(writer->Finish());
  result.input_file_count = static_cast<int64_t>(files.size());
  result.token_count = writer->token_count();
  result.token_bytes = writer->token_bytes();
  result.output_file_count = writer->file_count();
  result.vocab_size = tokenizer.vocab_size();
  return result;
}

}  // namespace atl::worker
