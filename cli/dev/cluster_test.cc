#include "cli/dev/cluster.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace atl::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// The programs are shell scripts that record their arguments.
class ClusterTest : public ::testing::Test {
 protected:
  ClusterTest()
      : path_(absl::StrCat(::testing::TempDir(), "/cluster-", ::getpid())) {
    std::filesystem::create_directories(path_);
    directory_ = *DevDirectory::Open(path_ + "/dir", "run");
  }
  ~ClusterTest() override { std::filesystem::remove_all(path_); }

  // A program that appends its arguments to PATH.calls and runs `script`. Its
  // `init` succeeds.
  std::string Program(const std::string& name, const std::string& script) {
    const std::string path = absl::StrCat(path_, "/", name);
    std::ofstream(path) << "#!/bin/sh\necho \"$@\" >> " << path << ".calls\n"
                        << "[ \"$1\" = init ] && echo why && exit "
                        << init_exit_ << "\n"
                        << script << "\n";
    ::chmod(path.c_str(), 0755);
    return path;
  }

  std::vector<std::string> Calls(const std::string& name) {
    std::ifstream file(absl::StrCat(path_, "/", name, ".calls"));
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }

  // Writes the port to the file of --port-file, and 1 before it to that of
  // --metrics-port-file, then sleeps.
  static std::string Serve(const std::string& port) {
    return absl::StrCat(
        "for a in \"$@\"; do case $a in --metrics-port-file=*) echo 1", port,
        " > ${a#*=};; esac; done\n",
        "for a in \"$@\"; do case $a in --port-file=*) echo ", port,
        " > ${a#*=};; esac; done\nexec sleep 600");
  }

  // "JOB INSTANCE ADDRESS" of each target for Prometheus.
  std::vector<std::string> Targets() {
    std::ifstream file(directory_->File("prometheus-targets.json"));
    std::vector<std::string> found;
    for (const auto& target :
         nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false)) {
      const auto& labels = target["labels"];
      found.push_back(absl::StrCat(labels["job"].get<std::string>(), " ",
                                   labels["instance"].get<std::string>(), " ",
                                   target["targets"][0].get<std::string>()));
    }
    return found;
  }

  Cluster::Options Options() {
    Cluster::Options options;
    options.programs.coordinator = Program("coordinator", Serve("4711"));
    options.programs.server = Program("server", Serve("4712"));
    options.programs.atoll = Program("atoll", "exit 0");
    options.on_note = [this](const std::string& note) {
      notes_.push_back(note);
    };
    return options;
  }

  absl::Status TendUntil(Cluster& cluster, const std::function<bool()>& done) {
    for (int i = 0; i < 200000; ++i) {
      absl::Status status = cluster.Tend(absl::Now());
      if (!status.ok() || done()) return status;
      // style-ok(call): a real process gives no other sign.
      absl::SleepFor(absl::Milliseconds(1));
    }
    return absl::DeadlineExceededError("never done");
  }

  int init_exit_ = 0;
  std::string path_;
  std::unique_ptr<DevDirectory> directory_;
  std::vector<std::string> notes_;
};

TEST_F(ClusterTest, StartsEachWithWhatItNeedsToKnow) {
  Cluster cluster(*directory_, Options());
  ASSERT_TRUE(cluster.StartCoordinator().ok());
  EXPECT_EQ(cluster.coordinator_address(), "127.0.0.1:4711");
  ASSERT_TRUE(cluster.StartServers().ok());
  EXPECT_THAT(cluster.server_addresses(), ElementsAre("127.0.0.1:4712"));
  EXPECT_THAT(Calls("server"),
              ElementsAre(HasSubstr("--coordinator=127.0.0.1:4711 "
                                    "--server-id=server-0")));
  ASSERT_TRUE(cluster.StartIslands("run").ok());
  ASSERT_TRUE(TendUntil(cluster, [&] { return cluster.IslandsEnded(); }).ok());
  EXPECT_THAT(Calls("atoll"),
              ElementsAre(HasSubstr("join 127.0.0.1:4711 --run run "
                                    "--island-id island-0")));
  cluster.Stop();
}

TEST_F(ClusterTest, AKilledServerComesBackAtItsPortWithoutFirstFlags) {
  Cluster::Options options = Options();
  options.first_flags["server-0"] = {"--failpoint=x"};
  Cluster cluster(*directory_, options);
  ASSERT_TRUE(cluster.StartCoordinator().ok());
  ASSERT_TRUE(cluster.StartServers().ok());
  pid_t pid = 0;
  std::ifstream(directory_->File("server-0/pid")) >> pid;
  ASSERT_GT(pid, 0);
  ::kill(pid, SIGKILL);
  ASSERT_TRUE(
      TendUntil(cluster, [&] { return Calls("server").size() == 2; }).ok());
  EXPECT_THAT(notes_, ElementsAre("server-0 was killed by signal 9; "
                                  "restarting it"));
  EXPECT_THAT(Calls("server"),
              ElementsAre(HasSubstr("--failpoint=x"),
                          HasSubstr("--listen=127.0.0.1:4712")));
  EXPECT_THAT(Calls("server")[1], ::testing::Not(HasSubstr("--failpoint")));
}

TEST_F(ClusterTest, PrometheusFindsEachProcessThatHasNotEnded) {
  Cluster::Options options = Options();
  options.programs.atoll =
      Program("atoll", Serve("4713") + " & while ! [ -e " + path_ +
                           "/end ]; do sleep 0.01; done; kill $!; exit 0");
  Cluster cluster(*directory_, options);
  ASSERT_TRUE(cluster.StartCoordinator().ok());
  ASSERT_TRUE(cluster.StartServers().ok());
  ASSERT_TRUE(cluster.StartIslands("run").ok());
  ASSERT_TRUE(TendUntil(cluster, [&] { return Targets().size() == 3; }).ok());
  EXPECT_THAT(Targets(),
              ElementsAre("atoll-coordinator coordinator 127.0.0.1:14711",
                          "atoll-server server-0 127.0.0.1:14712",
                          "atoll-island island-0 127.0.0.1:14713"));
  std::ofstream(path_ + "/end") << "";
  ASSERT_TRUE(TendUntil(cluster, [&] { return cluster.IslandsEnded(); }).ok());
  EXPECT_THAT(Targets(),
              ElementsAre(HasSubstr("coordinator"), HasSubstr("server-0")));
}

TEST_F(ClusterTest, ARestartedProcessKeepsItsMetricsPort) {
  Cluster cluster(*directory_, Options());
  ASSERT_TRUE(cluster.StartCoordinator().ok());
  ASSERT_TRUE(TendUntil(cluster, [&] { return Targets().size() == 1; }).ok());
  pid_t pid = 0;
  std::ifstream(directory_->File("coordinator/pid")) >> pid;
  ASSERT_GT(pid, 0);
  ::kill(pid, SIGKILL);
  ASSERT_TRUE(TendUntil(cluster, [&] {
                return Calls("coordinator").size() == 3;
              }).ok());
  EXPECT_THAT(Calls("coordinator"),
              ElementsAre(HasSubstr("init "),
                          HasSubstr("--metrics-listen=127.0.0.1:0 "),
                          HasSubstr("--metrics-listen=127.0.0.1:14711 ")));
}

TEST_F(ClusterTest, GivesUpOnWhatDiesAgainAndAgain) {
  Cluster::Options options = Options();
  options.programs.coordinator = Program("coordinator", "echo why; exit 1");
  options.restart_count_max = 3;
  Cluster cluster(*directory_, options);
  const absl::Status status = cluster.StartCoordinator();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("why"));
  EXPECT_THAT(Calls("coordinator"), SizeIs(5));  // With its init.
}

TEST_F(ClusterTest, MakesTheCoordinatorsLogBeforeItsFirstStart) {
  Cluster cluster(*directory_, Options());
  ASSERT_TRUE(cluster.StartCoordinator().ok());
  const std::string data = "--data-dir=" + directory_->File("coordinator/data");
  EXPECT_THAT(Calls("coordinator"),
              ElementsAre("init " + data + " --if-empty", HasSubstr(data)));
}

TEST_F(ClusterTest, GivesUpIfTheCoordinatorsLogCannotBeMade) {
  init_exit_ = 9;
  Cluster cluster(*directory_, Options());
  const absl::Status status = cluster.StartCoordinator();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("init exited with 9"), HasSubstr("why")));
  EXPECT_THAT(Calls("coordinator"), SizeIs(1));
}

TEST_F(ClusterTest, GivesUpAtOnceOnAnIslandThatIsWronglyCalled) {
  Cluster::Options options = Options();
  options.programs.atoll = Program("atoll", "exit 4");
  Cluster cluster(*directory_, options);
  ASSERT_TRUE(cluster.StartIslands("run").ok());
  EXPECT_EQ(TendUntil(cluster, [] { return false; }).code(),
            absl::StatusCode::kAborted);
  EXPECT_THAT(Calls("atoll"), SizeIs(1));
}

TEST_F(ClusterTest, LeavesTheDeadDeadIfAskedTo) {
  Cluster::Options options = Options();
  options.restart = false;
  options.programs.atoll = Program("atoll", "kill -9 $$");
  Cluster cluster(*directory_, options);
  ASSERT_TRUE(cluster.StartIslands("run").ok());
  EXPECT_TRUE(TendUntil(cluster, [&] { return cluster.IslandsEnded(); }).ok());
  EXPECT_THAT(Calls("atoll"), SizeIs(1));
}

}  // namespace
}  // namespace atl::cli
