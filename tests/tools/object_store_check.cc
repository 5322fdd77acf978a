// Checks an object store against a real server: writes, lists, reads and
// conditions. Leaves its objects.
//
//     AWS_ACCESS_KEY_ID=... object_store_check s3://BUCKET/PREFIX
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/codec/sha256.h"
#include "base/object_store/open_object_store.h"
#include "base/status/status_macros.h"

namespace atl {
namespace {

absl::Status Put(ObjectStore& store, const std::string& name,
                 const std::string& bytes, WriteMode mode) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ObjectWriter> writer,
                   store.Write(name, mode));
  RETURN_IF_ERROR(writer->Append(bytes));
  return writer->Commit();
}

absl::Status Expect(bool is_right, absl::string_view what) {
  std::printf("%s: %s\n", is_right ? "PASSED" : "FAILED",
              std::string(what).c_str());
  return is_right ? absl::OkStatus() : absl::InternalError(what);
}

// Writes `bytes` as `name`, and reads them again.
absl::Status CheckObject(ObjectStore& store, const std::string& name,
                         const std::string& bytes) {
  RETURN_IF_ERROR(Put(store, name, bytes, WriteMode::kReplace));
  ASSIGN_OR_RETURN(const ObjectInfo info, store.Stat(name));
  ASSIGN_OR_RETURN(const codec::Sha256Digest digest, HashObject(store, name));
  RETURN_IF_ERROR(
      Expect(info.size_bytes == static_cast<int64_t>(bytes.size()) &&
                 digest == codec::ComputeSha256(bytes),
             absl::StrCat(name, ": ", bytes.size(), " bytes")));
  if (bytes.empty()) return absl::OkStatus();
  const ReadRange last = {static_cast<int64_t>(bytes.size()) - 1, 1, info.etag};
  ASSIGN_OR_RETURN(const codec::Sha256Digest of_last,
                   HashObject(store, name, last));
  RETURN_IF_ERROR(
      Expect(of_last == codec::ComputeSha256(bytes.substr(last.offset)),
             absl::StrCat(name, ": its last byte")));
  const absl::Status beyond =
      HashObject(store, name, {last.offset, 2}).status();
  return Expect(absl::IsOutOfRange(beyond),
                absl::StrCat(name, ": beyond its end"));
}

absl::Status CheckPresigned(const std::string& url, const std::string& name,
                            const std::string& bytes,
                            ObjectStoreOptions options) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ObjectPresigner> presigner,
                   OpenObjectPresigner(url, options));
  ASSIGN_OR_RETURN(const PresignedUrl presigned,
                   presigner->Presign(name, absl::Minutes(5)));
  options.environment = nullptr;
  ASSIGN_OR_RETURN(const std::unique_ptr<ObjectStore> reader,
                   OpenObjectStore(presigned.url, options));
  ASSIGN_OR_RETURN(const ObjectInfo info, reader->Stat(""));
  ASSIGN_OR_RETURN(const codec::Sha256Digest digest, HashObject(*reader, ""));
  return Expect(info.size_bytes == static_cast<int64_t>(bytes.size()) &&
                    digest == codec::ComputeSha256(bytes),
                "a presigned URL");
}

absl::Status Check(const std::string& url) {
  ObjectStoreOptions options;
  options.environment =
      [](absl::string_view name) -> std::optional<std::string> {
    const char* const value = std::getenv(std::string(name).c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
  ASSIGN_OR_RETURN(const std::unique_ptr<ObjectStore> store,
                   OpenObjectStore(url, options));
  const std::string small = "a small object";
  std::string long_bytes;
  for (int i = 0; long_bytes.size() < (20 << 20) + 1; ++i) {
    absl::StrAppend(&long_bytes, i, ",");
  }
  RETURN_IF_ERROR(CheckObject(*store, "list/empty", ""));
  RETURN_IF_ERROR(CheckObject(*store, "list/small", small));
  RETURN_IF_ERROR(CheckObject(*store, "list/long", long_bytes));
  RETURN_IF_ERROR(CheckObject(*store, "list/a b+c&=%41/caf\xC3\xA9", small));
  ASSIGN_OR_RETURN(const auto listed, store->List("list/", 100));
  RETURN_IF_ERROR(Expect(listed.size() == 4, "the list"));
  for (int i = 0; i < 1005; ++i) {
    RETURN_IF_ERROR(
        Put(*store, absl::StrCat("many/", i), "", WriteMode::kReplace));
  }
  ASSIGN_OR_RETURN(const auto many, store->List("many/", 10'000));
  RETURN_IF_ERROR(Expect(many.size() == 1005, "a list of two pages"));
  for (const std::string& bytes : {small, long_bytes}) {
    const std::string name = absl::StrCat("once/", bytes.size());
    RETURN_IF_ERROR(Put(*store, name, bytes, WriteMode::kCreate));
    RETURN_IF_ERROR(Expect(
        absl::IsAlreadyExists(Put(*store, name, "x", WriteMode::kCreate)),
        absl::StrCat(name, ": created once")));
    // Past the look before the write.
    ASSIGN_OR_RETURN(const auto writer,
                     store->Write(name + "-late", WriteMode::kCreate));
    RETURN_IF_ERROR(writer->Append(bytes));
    RETURN_IF_ERROR(Put(*store, name + "-late", "x", WriteMode::kReplace));
    RETURN_IF_ERROR(Expect(absl::IsAlreadyExists(writer->Commit()),
                           absl::StrCat(name, ": refused at its commit")));
  }
  RETURN_IF_ERROR(Expect(absl::IsNotFound(store->Stat("missing").status()),
                         "a missing object"));
  return CheckPresigned(url, "list/long", long_bytes, options);
}

}  // namespace
}  // namespace atl

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: object_store_check s3://BUCKET/PREFIX\n");
    return 2;
  }
  const absl::Status status = atl::Check(argv[1]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
