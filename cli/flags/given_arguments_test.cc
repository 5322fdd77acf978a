#include "cli/flags/given_arguments.h"

#include <optional>

#include "CLI/CLI.hpp"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

TEST(GivenFlagsTest, AreThoseOfTheCommandAndItsParents) {
  CLI::App app;
  app.fallthrough();
  std::string coordinator, format, address, hours;
  std::optional<int> nice;
  bool idle = false, battery = false, service = false;
  app.add_option("--coordinator", coordinator)->default_str("x");
  app.add_option("-o,--format", format);
  CLI::App* join = app.add_subcommand("join");
  join->add_option("address", address);
  join->add_option("--hours", hours);
  join->add_option("--nice", nice);
  join->add_flag("--only-idle", idle);
  join->add_flag("--no-battery", battery);
  join->add_flag("--service", service);
  app.parse(
      "join atoll://secret --only-idle --service --nice 19 "
      "--hours=22:00-07:00 -o json");
  EXPECT_EQ(GivenFlags(*join, {"service"}),
            (std::vector<std::string>{"--hours=22:00-07:00", "--nice=19",
                                      "--only-idle", "--format=json"}));
}

}  // namespace
}  // namespace atl::cli
