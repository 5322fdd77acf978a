#include "cli/settings/settings.h"

#include <string>
#include <vector>

#include "cli/output/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

using ::testing::HasSubstr;

const Setting& Find(const Settings& settings, absl::string_view name) {
  for (const Setting& setting : settings.all()) {
    if (setting.name == name) return setting;
  }
  ADD_FAILURE() << name;
  return settings.all()[0];
}

TEST(SettingsTest, AFlagBeatsTheEnvironmentThatBeatsTheProfile) {
  Settings::Sources sources;
  auto resolved = Settings::Resolve(sources);
  ASSERT_TRUE(resolved.ok());
  EXPECT_EQ(resolved->Get("coordinator"), "127.0.0.1:7400");
  EXPECT_EQ(Find(*resolved, "coordinator").source, SettingSource::kDefault);

  sources.profile_path = "/p/profile.toml";
  sources.profile_text = "\ncoordinator = \"profile:1\"\n";
  resolved = Settings::Resolve(sources);
  ASSERT_TRUE(resolved.ok());
  EXPECT_EQ(resolved->Get("coordinator"), "profile:1");
  EXPECT_EQ(Find(*resolved, "coordinator").origin, "/p/profile.toml:2");

  sources.environment["ATOLL_COORDINATOR"] = "environment:1";
  resolved = Settings::Resolve(sources);
  ASSERT_TRUE(resolved.ok());
  EXPECT_EQ(resolved->Get("coordinator"), "environment:1");
  EXPECT_EQ(Find(*resolved, "coordinator").origin, "ATOLL_COORDINATOR");

  sources.flags["coordinator"] = "flag:1";
  resolved = Settings::Resolve(sources);
  ASSERT_TRUE(resolved.ok());
  EXPECT_EQ(resolved->Get("coordinator"), "flag:1");
  EXPECT_EQ(Find(*resolved, "coordinator").source, SettingSource::kFlag);
}

TEST(SettingsTest, ASwitchMayBeANumber) {
  Settings::Sources sources;
  sources.environment["ATOLL_INSECURE"] = "1";
  auto resolved = Settings::Resolve(sources);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_TRUE(resolved->insecure());
  sources.environment["ATOLL_INSECURE"] = "0";
  resolved = Settings::Resolve(sources);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_FALSE(resolved->insecure());
  sources.environment["ATOLL_INSECURE"] = "yes";
  EXPECT_FALSE(Settings::Resolve(sources).ok());
}

TEST(SettingsTest, PathsOfAProfileAreRelativeToIt) {
  Settings::Sources sources;
  sources.profile_path = "/p/profile.toml";
  sources.profile_text = "tls_ca = \"ca.pem\"\ntls_key = \"/k.pem\"\n";
  auto resolved = Settings::Resolve(sources);
  ASSERT_TRUE(resolved.ok());
  EXPECT_EQ(resolved->Get("tls_ca"), "/p/ca.pem");
  EXPECT_EQ(resolved->Get("tls_key"), "/k.pem");
}

TEST(SettingsTest, ADirectoryStandsForTheTlsFilesOfInferiorSources) {
  Settings::Sources sources;
  sources.profile_path = "/p/profile.toml";
  sources.profile_text = "tls_ca = \"ca.pem\"\ntls_cert = \"c.pem\"\n";
  sources.environment["ATOLL_TLS_DIR"] = "anna";
  sources.environment["ATOLL_TLS_KEY"] = "k.pem";
  auto resolved = Settings::Resolve(sources);
  ASSERT_TRUE(resolved.ok());
  EXPECT_EQ(resolved->Get("tls_ca"), "anna/ca.crt");
  EXPECT_EQ(resolved->Get("tls_cert"), "anna/tls.crt");
  EXPECT_EQ(Find(*resolved, "tls_cert").origin, "ATOLL_TLS_DIR");
  EXPECT_EQ(resolved->Get("tls_key"), "k.pem");
  sources.flags["tls_dir"] = "berta";
  resolved = Settings::Resolve(sources);
  ASSERT_TRUE(resolved.ok());
  EXPECT_EQ(resolved->Get("tls_key"), "berta/tls.key");
}

TEST(SettingsTest, TlsIsDroppedUnlessAFlagAsksForIt) {
  Settings::Sources sources;
  sources.environment["ATOLL_TLS_DIR"] = "anna";
  sources.profile_path = "/p";
  sources.profile_text = "tls_key = \"k.pem\"\n";
  auto resolved = Settings::Resolve(sources);
  ASSERT_TRUE(resolved.ok());
  ASSERT_TRUE(resolved->DropTls().ok());
  for (const char* const name : {"tls_dir", "tls_cert", "tls_key", "tls_ca"}) {
    EXPECT_EQ(resolved->Get(name), "") << name;
  }
  sources.flags["tls_dir"] = "";  // None, said once more.
  EXPECT_TRUE(Settings::Resolve(sources)->DropTls().ok());
  sources.flags["tls_dir"] = "berta";
  resolved = Settings::Resolve(sources);
  ASSERT_TRUE(resolved.ok());
  const absl::Status refused = resolved->DropTls();
  EXPECT_EQ(ToExitCode(refused), ExitCode::kUsage);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--tls-dir"));
  EXPECT_EQ(resolved->Get("tls_cert"), "berta/tls.crt");
}

TEST(SettingsTest, AnUnknownProfileKeyIsToldWithItsLine) {
  Settings::Sources sources;
  sources.profile_path = "/p";
  sources.profile_text = "format = \"json\"\ncordinator = \"x\"\n";
  auto resolved = Settings::Resolve(sources);
  ASSERT_FALSE(resolved.ok());
  EXPECT_EQ(ToExitCode(resolved.status()), ExitCode::kInvalidConfig);
  EXPECT_THAT(std::string(resolved.status().message()),
              HasSubstr("/p:2: unknown setting 'cordinator'; did you mean "
                        "'coordinator'?"));
}

TEST(SettingsTest, TheProxyMayComeFromWhereOtherProgramsHaveIt) {
  Settings::Sources sources;
  EXPECT_EQ(Settings::Resolve(sources)->proxy().address.port, 0);

  sources.environment["https_proxy"] = "other:1";
  sources.environment["NO_PROXY"] = "near.org";
  auto resolved = Settings::Resolve(sources);
  ASSERT_TRUE(resolved.ok());
  EXPECT_EQ(resolved->proxy().name(), "other:1");
  EXPECT_EQ(Find(*resolved, "proxy").origin, "https_proxy");
  EXPECT_EQ(Find(*resolved, "proxy").source, SettingSource::kEnvironment);
  EXPECT_FALSE(resolved->proxy().Serves("near.org"));

  // NO_PROXY belongs to HTTPS_PROXY.
  sources.environment["ATOLL_PROXY"] = "http://me:hidden@own:2";
  resolved = Settings::Resolve(sources);
  ASSERT_TRUE(resolved.ok());
  EXPECT_EQ(resolved->proxy().name(), "own:2");
  EXPECT_EQ(resolved->proxy().credentials, "me:hidden");
  EXPECT_EQ(resolved->Get("proxy"), "http://***@own:2");
  EXPECT_TRUE(resolved->proxy().Serves("near.org"));

  sources.flags["proxy"] = "";
  EXPECT_EQ(Settings::Resolve(sources)->proxy().address.port, 0);
}

TEST(SettingsTest, AMalformedProxyOfOursIsNamedWithItsOrigin) {
  Settings::Sources sources;
  sources.environment["ATOLL_PROXY"] = "socks5://me:hidden@p:1";
  const absl::Status status = Settings::Resolve(sources).status();
  EXPECT_EQ(ToExitCode(status), ExitCode::kUsage);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("ATOLL_PROXY: the proxy \"socks5://***@p:1\""));
  sources.environment.clear();
  sources.flags["proxy"] = "socks5://p:1";
  EXPECT_EQ(ToExitCode(Settings::Resolve(sources).status()), ExitCode::kUsage);
  sources.flags.clear();
  sources.profile_text = "proxy = \"socks5://p:1\"\n";
  EXPECT_EQ(ToExitCode(Settings::Resolve(sources).status()), ExitCode::kUsage);
}

TEST(SettingsTest, AForeignProxyThatWeDoNotKnowFailsOnlyDialsThroughIt) {
  Settings::Sources sources;
  sources.environment["HTTPS_PROXY"] = "socks5://me:hidden@p:1";
  sources.environment["NO_PROXY"] = "near.org";
  const auto resolved = Settings::Resolve(sources);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(resolved->Get("proxy"), "socks5://***@p:1");
  EXPECT_TRUE(resolved->proxy().Serves("far.org"));
  EXPECT_FALSE(resolved->proxy().Serves("near.org"));
  const std::string message(resolved->proxy().CheckUsable().message());
  EXPECT_THAT(message,
              HasSubstr("HTTPS_PROXY: the proxy \"socks5://***@p:1\""));
  EXPECT_THAT(message, HasSubstr("--proxy"));
  EXPECT_THAT(message, HasSubstr("NO_PROXY"));
}

TEST(SettingsTest, TheTimeoutIsADuration) {
  Settings::Sources sources;
  sources.flags["timeout"] = "2m";
  auto resolved = Settings::Resolve(sources);
  ASSERT_TRUE(resolved.ok());
  EXPECT_EQ(resolved->timeout(), absl::Minutes(2));
  sources.flags["timeout"] = "soon";
  EXPECT_EQ(ToExitCode(Settings::Resolve(sources).status()), ExitCode::kUsage);
}

TEST(SettingsTest, TheProfileIsFoundByTheEnvironment) {
  EXPECT_EQ(DefaultProfilePath({}), "");
  EXPECT_EQ(DefaultProfilePath({{"HOME", "/h"}}),
            "/h/.config/atoll/profile.toml");
  EXPECT_EQ(DefaultProfilePath({{"HOME", "/h"}, {"XDG_CONFIG_HOME", "/x"}}),
            "/x/atoll/profile.toml");
  EXPECT_EQ(DefaultProfilePath({{"HOME", "/h"}, {"ATOLL_PROFILE", "/a.toml"}}),
            "/a.toml");
}

TEST(SettingsTest, HostsOfDataAreAListAndKeysASwitch) {
  Settings::Sources sources;
  auto resolved = Settings::Resolve(sources);
  ASSERT_TRUE(resolved.ok());
  EXPECT_TRUE(resolved->allowed_data_hosts().empty());
  EXPECT_FALSE(resolved->has_data_credentials());
  sources.environment["ATOLL_ALLOW_DATA_HOST"] = "data.lan,10.0.0.7,[fd00::1]";
  sources.profile_text = "data_credentials = true\n";
  resolved = Settings::Resolve(sources);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(resolved->allowed_data_hosts(),
            (std::vector<std::string>{"data.lan", "10.0.0.7", "[fd00::1]"}));
  EXPECT_TRUE(resolved->has_data_credentials());
  for (const char* wrong : {"https://data.lan", "data.lan:443", "a/b", "a b"}) {
    sources.environment["ATOLL_ALLOW_DATA_HOST"] = wrong;
    EXPECT_FALSE(Settings::Resolve(sources).ok()) << wrong;
  }
  sources.environment["ATOLL_ALLOW_DATA_HOST"] = "";
  sources.environment["ATOLL_DATA_CREDENTIALS"] = "yes";
  EXPECT_FALSE(Settings::Resolve(sources).ok());
}

TEST(SettingsTest, TheConfigurationsFolderIsTheUsers) {
  EXPECT_EQ(ConfigDirectory({}), "");
  EXPECT_EQ(ConfigDirectory({{"HOME", "/h"}}), "/h/.config/atoll");
  EXPECT_EQ(ConfigDirectory({{"HOME", "/h"}, {"XDG_CONFIG_HOME", "/c"}}),
            "/c/atoll");
}

}  // namespace
}  // namespace atl::cli
