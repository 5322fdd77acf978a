#include "cli/run_file/data_url.h"

#include "absl/strings/string_view.h"

namespace atl::cli {

void DropOtherData(const std::set<std::string>& own, v1::DataSpec* data) {
  if (own.count("data.url") == 0) return;
  const auto is_own = [&](const std::string& key) {
    return own.count("data." + key) != 0;
  };
  if (!is_own("path")) data->clear_path();
  if (!is_own("format")) data->clear_format();
  if (!is_own("fingerprint")) data->clear_fingerprint();
  if (!is_own("seed")) data->clear_seed();
  if (!is_own("validation_fraction")) data->clear_validation_fraction();
}

std::vector<std::string> FindDataFaults(const v1::DataSpec& data) {
  std::vector<std::string> faults;
  if (data.url().empty()) {
    if (data.order() == v1::DATA_ORDER_BY_FILE) {
      faults.push_back(
          "'data.order' \"by_file\" needs data.url: a manifest gives the order "
          "of the files");
    }
    return faults;
  }
  if (!data.path().empty()) {
    faults.push_back(
        "'data.url' and 'data.path' exclude each other: leave one out");
  }
  if (data.order() != v1::DATA_ORDER_BY_FILE) {
    faults.push_back(
        "'data.order' must be \"by_file\" with data.url: islands fetch one "
        "file after another");
  }
  if (data.validation_fraction() != 0) {
    faults.push_back(
        "'data.validation_fraction' is not read with data.url: the manifest "
        "says which files are held out; leave it out");
  }
  if (data.seed() != 0) {
    faults.push_back(
        "'data.seed' is not read with data.url: files are read in the "
        "manifest's order; leave it out");
  }
  return faults;
}

}  // namespace atl::cli
