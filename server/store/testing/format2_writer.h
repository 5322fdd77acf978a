// Makes the database of a data directory of format 2.

#pragma once

#include <map>
#include <string>

namespace atl::server {

// Writes `records` and the record `format` to the database in `directory`, which
// it makes if needed. Any failure ends the process.
void WriteFormat2(const std::string& directory,
                  const std::map<std::string, std::string>& records,
                  const std::string& format = "2");

}  // namespace atl::server
