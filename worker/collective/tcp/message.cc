#include "worker/collective/tcp/message.h"

#include <bit>
#include <cstring>

#include "base/status/status_macros.h"

namespace atl::collective {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr uint32_t kMagic = 0x4d4c5441;  // "ATLM"

class Writer {
 public:
  void Number(int64_t value) { Raw(&value, sizeof(value)); }
  void Length(size_t value) {
    const auto narrow = static_cast<uint32_t>(value);
    Raw(&narrow, sizeof(narrow));
  }
  void Text(absl::string_view text) {
    Length(text.size());
    Raw(text.data(), text.size());
  }
  std::string Take() { return std::move(bytes_); }

 private:
  void Raw(const void* data, size_t count) {
    bytes_.append(static_cast<const char*>(data), count);
  }
  std::string bytes_;
};

// Reads past the end give zeros and make ok() false.
class Reader {
 public:
  explicit Reader(absl::string_view bytes) : bytes_(bytes) {}

  int64_t Number() {
    int64_t value = 0;
    Raw(&value, sizeof(value));
    return value;
  }
  uint32_t Length() {
    uint32_t value = 0;
    Raw(&value, sizeof(value));
    return value;
  }
  std::string Text() {
    const uint32_t length = Length();
    if (!ok_ || length > bytes_.size()) {
      ok_ = false;
      return "";
    }
    std::string text(bytes_.substr(0, length));
    bytes_.remove_prefix(length);
    return text;
  }
  bool ok() const { return ok_; }
  bool at_end() const { return bytes_.empty(); }

 private:
  void Raw(void* out, size_t count) {
    if (!ok_ || count > bytes_.size()) {
      ok_ = false;
      return;
    }
    std::memcpy(out, bytes_.data(), count);
    bytes_.remove_prefix(count);
  }
  absl::string_view bytes_;
  bool ok_ = true;
};

}  // namespace

std::string EncodeMessage(const Message& message) {
  Writer body;
  body.Number(static_cast<int64_t>(message.type));
  for (int64_t value : {message.code, message.process_index,
                        message.process_count, message.rank_count, message.port,
                        message.rank, message.peer, message.call_count}) {
    body.Number(value);
  }
  for (const std::string* text :
       {&message.layout, &message.group, &message.text}) {
    body.Text(*text);
  }
  body.Length(message.processes.size());
  for (const ProcessEntry& process : message.processes) {
    body.Text(process.host);
    body.Number(process.port);
    body.Number(process.rank_count);
  }
  const std::string bytes = body.Take();
  Writer head;
  head.Length(kMagic);
  head.Length(bytes.size());
  return head.Take() + bytes;
}

absl::StatusOr<size_t> MessageBytes(absl::string_view bytes) {
  if (bytes.size() < kMessageHeadBytes) return kMessageHeadBytes;
  Reader head(bytes);
  const uint32_t magic = head.Length();
  const uint32_t length = head.Length();
  if (magic != kMagic) {
    return absl::InvalidArgumentError("the bytes are not a message of a world");
  }
  if (length > kMessageBytesMax) {
    return absl::InvalidArgumentError("a message is too long");
  }
  return kMessageHeadBytes + length;
}

absl::StatusOr<std::optional<Message>> TakeMessage(std::string& buffer) {
  ASSIGN_OR_RETURN(const size_t needed, MessageBytes(buffer));
  if (buffer.size() < needed || buffer.size() < kMessageHeadBytes) {
    return std::optional<Message>();
  }
  Reader body(absl::string_view(buffer).substr(kMessageHeadBytes,
                                               needed - kMessageHeadBytes));
  Message message;
  const int64_t type = body.Number();
  for (int64_t* value :
       {&message.code, &message.process_index, &message.process_count,
        &message.rank_count, &message.port, &message.rank, &message.peer,
        &message.call_count}) {
    *value = body.Number();
  }
  for (std::string* text :
       {&message.layout, &message.group, &message.text}) {
    *text = body.Text();
  }
  const uint32_t process_count = body.Length();
  for (uint32_t i = 0; i < process_count && body.ok(); ++i) {
    ProcessEntry process;
    process.host = body.Text();
    process.port = body.Number();
    process.rank_count = body.Number();
    message.processes.push_back(std::move(process));
  }
  if (!body.ok() || !body.at_end() || type < 1 || type > 8) {
    return absl::InvalidArgumentError("a message of a world is malformed");
  }
  message.type = static_cast<MessageType>(type);
  buffer.erase(0, needed);
  return std::optional<Message>(std::move(message));
}

}  // namespace atl::collective
