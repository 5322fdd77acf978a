// A published directory for tests: a.bin with "abcd", and deep/b.bin.

#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/codec/sha256.h"
#include "base/random_id/random_id.h"
#include "gtest/gtest.h"
#include "worker/data/manifest.h"

namespace atl::worker {

class PublishedDirectory {
 public:
  // `deep` is the content of deep/b.bin.
  explicit PublishedDirectory(const std::string& deep = "efghij") {
    std::filesystem::create_directories(path_ + "/deep");
    Manifest manifest;
    manifest.format = v1::DATA_FORMAT_BYTES;
    for (const auto& [name, text] :
         {std::pair<std::string, std::string>("a.bin", "abcd"),
          {"deep/b.bin", deep}}) {
      Write(name, text);
      const auto size = static_cast<int64_t>(text.size());
      manifest.files.push_back(
          {name, size, codec::ToHex(codec::ComputeSha256(text)), size});
    }
    Write("manifest.json", WriteManifest(manifest));
  }

  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ + "/" + name) << text;
  }

  std::string Read(const std::string& name) const {
    std::ifstream file(path_ + "/" + name);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  const std::string& path() const { return path_; }

 private:
  const std::string path_ =
      absl::StrCat(::testing::TempDir(), "/published.", RandomId());
};

}  // namespace atl::worker
