// Changes messages and bytes at random, for tests of code that must accept any
// input from a peer, a file or a user. Thread-compatible.

#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "google/protobuf/message.h"

namespace atl {

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  // A random number in [0, count).
  size_t Pick(size_t count) {
    return std::uniform_int_distribution<size_t>(0, count - 1)(random_);
  }

  // Changes 1 to 4 fields of `message` or of nested messages: to extreme or
  // senseless values. Elements are added, removed and swapped.
  void Change(google::protobuf::Message& message);

  // One of `seeds` (not empty) with 1 to 8 changes: bytes, cuts, repetitions,
  // digits replaced by large numbers, parts of other seeds.
  std::string Changed(const std::vector<std::string>& seeds);

 private:
  void ChangeOnce(google::protobuf::Message& message);
  void ChangeRepeated(google::protobuf::Message& message,
                      const google::protobuf::FieldDescriptor* field);
  void SetScalar(google::protobuf::Message& message,
                 const google::protobuf::FieldDescriptor* field, int index);
  int64_t AnyInteger(int64_t now);
  double AnyDouble(double now);
  std::string AnyString(std::string now, bool is_bytes);
  void ChangeBytes(const std::string& other, std::string& bytes);

  std::mt19937_64 random_;
};

}  // namespace atl
