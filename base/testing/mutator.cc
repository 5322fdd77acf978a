#include "base/testing/mutator.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <limits>

#include "google/protobuf/descriptor.h"

namespace atl {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// The size up to which repeated fields grow.
constexpr int kElementsMax = 64;
constexpr size_t kBytesMax = 1 << 16;

}  // namespace

// --- Messages ---------------------------------------------------------------

void Mutator::Change(Message& message) {
  for (size_t left = 1 + Pick(4); left > 0; --left) ChangeOnce(message);
}

void Mutator::ChangeOnce(Message& message) {
  const google::protobuf::Descriptor* type = message.GetDescriptor();
  if (type->field_count() == 0) return;
  const Reflection* reflection = message.GetReflection();
  const FieldDescriptor* field =
      type->field(static_cast<int>(Pick(type->field_count())));
  if (field->is_repeated()) {
    ChangeRepeated(message, field);
  } else if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
    SetScalar(message, field, -1);
  } else if (reflection->HasField(message, field) && Pick(8) == 0) {
    reflection->ClearField(&message, field);
  } else {
    ChangeOnce(*reflection->MutableMessage(&message, field));
  }
}

void Mutator::ChangeRepeated(Message& message, const FieldDescriptor* field) {
  const Reflection* reflection = message.GetReflection();
  const bool is_message = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
  const int size = reflection->FieldSize(message, field);
  const size_t choice = Pick(12);
  if (size == 0 || (choice == 0 && size < kElementsMax)) {
    if (is_message) {
      Message* added = reflection->AddMessage(&message, field);
      if (size > 0) {  // A duplicate.
        added->CopyFrom(reflection->GetRepeatedMessage(
            message, field, static_cast<int>(Pick(size))));
      } else {
        ChangeOnce(*added);
      }
    } else {
      SetScalar(message, field, size);
    }
  } else if (choice == 1) {
    reflection->SwapElements(&message, field, static_cast<int>(Pick(size)),
                             size - 1);
    reflection->RemoveLast(&message, field);
  } else if (choice == 2) {
    reflection->SwapElements(&message, field, static_cast<int>(Pick(size)),
                             static_cast<int>(Pick(size)));
  } else if (choice == 3 && Pick(4) == 0) {
    reflection->ClearField(&message, field);
  } else if (is_message) {
    ChangeOnce(*reflection->MutableRepeatedMessage(
        &message, field, static_cast<int>(Pick(size))));
  } else {
    SetScalar(message, field, static_cast<int>(Pick(size)));
  }
}

// For a repeated field sets element `index`; index == size appends.
void Mutator::SetScalar(Message& message, const FieldDescriptor* field,
                        int index) {
  const Reflection* r = message.GetReflection();
  const bool repeated = field->is_repeated();
  const bool adds = repeated && index == r->FieldSize(message, field);
  // Calls the reflection method of `Kind`.
#define ATL_SET(Kind, value_of)                                          \
  do {                                                                   \
    const auto now = adds       ? decltype(r->Get##Kind(message, field)) \
                                      {}                                 \
                     : repeated ? r->GetRepeated##Kind(message, field,   \
                                                       index)            \
                                : r->Get##Kind(message, field);          \
    const auto value = static_cast<std::decay_t<decltype(now)>>(         \
        value_of(now));                                                  \
    if (adds) {                                                          \
      r->Add##Kind(&message, field, value);                              \
    } else if (repeated) {                                               \
      r->SetRepeated##Kind(&message, field, index, value);               \
    } else {                                                             \
      r->Set##Kind(&message, field, value);                              \
    }                                                                    \
  } while (false)
  const auto integer = [this](auto now) {
    return AnyInteger(static_cast<int64_t>(now));
  };
  const auto real = [this](double now) { return AnyDouble(now); };
  const auto enumeration = [this, field](int) {
    return static_cast<int>(Pick(field->enum_type()->value_count() + 2)) - 1;
  };
  const auto text = [this, field](const std::string& now) {
    return AnyString(now, field->type() == FieldDescriptor::TYPE_BYTES);
  };
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      ATL_SET(Int32, integer);
      return;
    case FieldDescriptor::CPPTYPE_INT64:
      ATL_SET(Int64, integer);
      return;
    case FieldDescriptor::CPPTYPE_UINT32:
      ATL_SET(UInt32, integer);
      return;
    case FieldDescriptor::CPPTYPE_UINT64:
      ATL_SET(UInt64, integer);
      return;
    case FieldDescriptor::CPPTYPE_FLOAT:
      ATL_SET(Float, real);
      return;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      ATL_SET(Double, real);
      return;
    case FieldDescriptor::CPPTYPE_BOOL:
      ATL_SET(Bool, !);
      return;
    case FieldDescriptor::CPPTYPE_ENUM:
      ATL_SET(EnumValue, enumeration);
      return;
    case FieldDescriptor::CPPTYPE_STRING:
      ATL_SET(String, text);
      return;
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return;
  }
#undef ATL_SET
}

int64_t Mutator::AnyInteger(int64_t now) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  switch (Pick(10)) {
    case 0:
      return 0;
    case 1:
      return kMost - static_cast<int64_t>(Pick(2));
    case 2:
      return kLeast;
    case 3:
      return -1;
    case 4:
      return std::numeric_limits<int32_t>::max();
    case 5:
      return std::numeric_limits<int32_t>::min();
    case 6:
      return int64_t{1} << Pick(63);
    case 7:
      return static_cast<int64_t>(static_cast<uint64_t>(now) + 1);
    case 8:
      return static_cast<int64_t>(static_cast<uint64_t>(now) - 1);
    default:
      return static_cast<int64_t>(Pick(100));
  }
}

double Mutator::AnyDouble(double now) {
  using Limits = std::numeric_limits<double>;
  const double values[] = {
      0,           -0.0,  1,         -1,     Limits::quiet_NaN(),
      1e-300,      1e300, 1e-45,     1e38,   Limits::infinity(),
      now * 2,     -now,  now + 0.5, now / 2, -Limits::infinity(),
      Limits::max()};
  return values[Pick(std::size(values))];
}

std::string Mutator::AnyString(std::string now, bool is_bytes) {
  switch (Pick(6)) {
    case 0:
      return "";
    case 1:
      return std::string(1 + Pick(2000), 'x');
    case 2:
      return now + now;
    case 3:
      return now.substr(0, now.size() / 2);
    default:
      ChangeBytes(now, now);
      // Strings of parsed messages are always UTF-8.
      if (!is_bytes) {
        for (char& c : now) c = static_cast<char>(c & 0x7f);
      }
      return now;
  }
}

// --- Bytes ------------------------------------------------------------------

std::string Mutator::Changed(const std::vector<std::string>& seeds) {
  std::string bytes = seeds[Pick(seeds.size())];
  for (size_t left = 1 + Pick(8); left > 0; --left) {
    ChangeBytes(seeds[Pick(seeds.size())], bytes);
  }
  return bytes;
}

void Mutator::ChangeBytes(const std::string& other, std::string& bytes) {
  if (bytes.empty()) {
    bytes.push_back(static_cast<char>(Pick(256)));
    return;
  }
  const size_t at = Pick(bytes.size());
  const size_t length = 1 + Pick(std::min<size_t>(bytes.size() - at, 32));
  switch (Pick(8)) {
    case 0:
      bytes[at] = static_cast<char>(Pick(256));
      return;
    case 1:
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << Pick(8)));
      return;
    case 2:
      bytes.erase(at, length);
      return;
    case 3:
      if (bytes.size() < kBytesMax) {
        const std::string again = bytes.substr(at, length);
        for (size_t left = 1 + Pick(4); left > 0; --left) {
          bytes.insert(at, again);
        }
      }
      return;
    case 4:
      bytes.resize(at);
      return;
    case 5: {
      if (other.empty() || bytes.size() >= kBytesMax) return;
      const size_t from = Pick(other.size());
      bytes.insert(at, other.substr(from, 1 + Pick(32)));
      return;
    }
    case 6: {
      // Replaces a digit at or after `at` by an extreme number.
      const auto digit = std::find_if(
          bytes.begin() + static_cast<std::ptrdiff_t>(at), bytes.end(),
          [](unsigned char c) { return std::isdigit(c) != 0; });
      if (digit == bytes.end()) return;
      const char* const numbers[] = {"-1", "1e400",  "99999999999999999999",
                                     "0",  "-1e-400", "9223372036854775807",
                                     "nan", "4294967296"};
      bytes.replace(static_cast<size_t>(digit - bytes.begin()), 1,
                    numbers[Pick(std::size(numbers))]);
      return;
    }
    default:
      bytes[at] = "\"{}[],:=\\ \n\xff"[Pick(12)];
      return;
  }
}

}  // namespace atl
