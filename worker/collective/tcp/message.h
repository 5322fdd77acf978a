// Messages between the processes of a world, apart from the bytes of calls.
//
// Pure. On the wire, after the handshake: "ATLM", the length of the rest (4
// bytes), all fields in the order of the struct. Numbers are little-endian, 8
// bytes; strings and lists begin with their length in 4 bytes.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace atl::collective {

enum class MessageType : uint8_t {
  kJoin = 1,  // To process 0, first: the sender, and where it listens.
  kControl = 2,  // First, between two others: who dials.
  kLink = 3,  // First: bytes of a group's calls between two ranks follow.
  kRefusal = 4,  // Answer to any of these: code and text; then it closes.
  kRoster = 5,   // Answer to kJoin once all processes have come.
  kBye = 6,      // Control connection: this process needs no other any longer.
  kBroken = 7,   // The world has ended: code and text.
  kLeft = 8,     // `rank` left `group` after `call_count` calls.
};

struct ProcessEntry {
  std::string host;
  int64_t port = 0;
  int64_t rank_count = 0;
};

struct Message {
  MessageType type = MessageType::kBye;
  int64_t code = 0;  // absl::StatusCode.
  int64_t process_index = 0;
  int64_t process_count = 0;
  int64_t rank_count = 0;
  int64_t port = 0;
  int64_t rank = 0;  // kLink: the rank that dials.
  int64_t peer = 0;  // kLink: the rank that is dialled.
  int64_t call_count = 0;
  std::string layout;
  std::string group;
  std::string text;
  std::vector<ProcessEntry> processes;
};

inline constexpr size_t kMessageHeadBytes = 8;
inline constexpr size_t kMessageBytesMax = 256 << 10;

std::string EncodeMessage(const Message& message);

// Bytes of the message at the front of `bytes`; kMessageHeadBytes if its head
// is incomplete. INVALID_ARGUMENT: no message, or above kMessageBytesMax.
absl::StatusOr<size_t> MessageBytes(absl::string_view bytes);

// Removes the first message from `buffer`; nullopt if it is incomplete.
// INVALID_ARGUMENT: as MessageBytes, or fields do not fit the length.
absl::StatusOr<std::optional<Message>> TakeMessage(std::string& buffer);

}  // namespace atl::collective
