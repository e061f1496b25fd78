// Settings: which source wins, and what is said about a bad one.
#include "daemon/options.h"

#include <stdlib.h>

#include "tests/support/test.h"

namespace quern {

namespace {

Result<Options> parse(std::vector<const char*> words) {
  words.insert(words.begin(), "quernd");
  return parse_options(static_cast<int>(words.size()), words.data());
}

std::string config_file(const std::string& text) {
  const std::string path = temp_dir() / "quern.conf";
  write_test_file(path, text);
  return "--config=" + path;
}

int clean_environment(void**) {
  for (const char* name :
       {"QUERN_WORKERS", "QUERN_MAX_CLIENTS", "QUERN_CONFIG", "QUERN_SOCKET", "QUERN_FOREGROUND"})
    unsetenv(name);
  setenv("XDG_CONFIG_HOME", "/nowhere", 1);
  return 0;
}

void the_command_line_beats_the_environment_beats_the_file(void**) {
  const std::string config =
      config_file("# a comment\n[quernd]\nworkers = 3\nmax-clients = 7\ncache-size = 1G\n");
  auto options = parse({config.c_str()});
  assert_ok(options);
  assert_int_equal(options->workers, 3);
  assert_int_equal(options->max_clients, 7);
  assert_int_equal(options->cache_bytes, 1 << 30);
  setenv("QUERN_WORKERS", "4", 1);
  setenv("QUERN_MAX_CLIENTS", "8", 1);
  options = parse({config.c_str(), "--workers", "5"});
  assert_ok(options);
  assert_int_equal(options->workers, 5);
  assert_int_equal(options->max_clients, 8);
}

void switches_take_no_value_or_yes_or_no(void**) {
  assert_true(parse({"--foreground"})->foreground);
  assert_false(parse({})->foreground);
  setenv("QUERN_FOREGROUND", "yes", 1);
  assert_true(parse({})->foreground);
  assert_false(parse({"--foreground=no"})->foreground);
  assert_error(parse({"--foreground=maybe"}), ErrorCode::INVALID_ARGUMENT, "neither yes nor no");
}

void bad_settings_are_named_with_their_place(void**) {
  assert_error(parse({"--no-such"}), ErrorCode::INVALID_ARGUMENT, "--no-such");
  assert_error(parse({"workers=3"}), ErrorCode::INVALID_ARGUMENT, "workers=3");
  assert_error(parse({"--workers"}), ErrorCode::INVALID_ARGUMENT, "--workers=N");
  assert_error(parse({"--workers=0"}), ErrorCode::INVALID_ARGUMENT, "--workers: 0 is not within 1 to 64");
  assert_error(parse({"--log-level=loud"}), ErrorCode::INVALID_ARGUMENT, "warning");
  assert_error(parse({config_file("[quernd]\nworkers = 1\nworker-count = 3\n").c_str()}),
               ErrorCode::INVALID_ARGUMENT, "quern.conf:3: worker-count");
  assert_error(parse({config_file("[quernd]\nwhat is this\n").c_str()}), ErrorCode::INVALID_ARGUMENT,
               "quern.conf:2");
  assert_error(parse({config_file("[quern]\nworkers = 1\n").c_str()}), ErrorCode::INVALID_ARGUMENT,
               "there is no section [quern]; settings stand in [quernd]");
  assert_error(parse({"--config=/nowhere/quern.conf"}), ErrorCode::INVALID_ARGUMENT, "/nowhere/quern.conf");
  setenv("QUERN_MAX_CLIENTS", "many", 1);
  assert_error(parse({}), ErrorCode::INVALID_ARGUMENT, "QUERN_MAX_CLIENTS");
}

void a_fleet_needs_an_address_that_is_one(void**) {
  for (const char* good :
       {"--fleet=unix:/run/redis.sock", "--fleet=10.0.0.7:6379", "--fleet=redis.local:1", "--fleet=::1:6379"})
    assert_ok(parse({good}));
  for (const char* bad :
       {"--fleet=redis", "--fleet=redis:", "--fleet=:6379", "--fleet=redis:65536", "--fleet=unix:redis"})
    assert_error(parse({bad}), ErrorCode::INVALID_ARGUMENT, "neither unix:/PATH nor HOST:PORT");
  assert_error(parse({("--fleet=unix:/" + std::string(200, 'x')).c_str()}), ErrorCode::INVALID_ARGUMENT,
               "107");
  assert_error(parse({"--fleet-ms=1"}), ErrorCode::INVALID_ARGUMENT, "not within 10 to 60000");
  assert_error(parse({"--fleet-prefix="}), ErrorCode::INVALID_ARGUMENT, "1 to 64 bytes");
  const std::string config =
      config_file("[quernd]\nfleet = db:6379\nfleet-password-file = secret\nfleet-wait-seconds = 5\n");
  const auto options = parse({config.c_str()});
  assert_ok(options);
  const std::filesystem::path folder = std::filesystem::path(options->config).parent_path();
  assert_text_equal(options->fleet.address, "db:6379");
  assert_text_equal(options->fleet.password_file, (folder / "secret").string());
  assert_text_equal(options->fleet.key_file, (folder / "pack.key").string());
  assert_text_equal(options->fleet.trust_file, (folder / "trusted-keys").string());
  assert_int_equal(options->fleet.wait_seconds, 5);
}

void what_may_change_while_it_runs_is_taken(void**) {
  const std::string config =
      config_file("[quernd]\nmax-clients = 7\nlog-level = debug\ncache-dir = one\nworkers = 2\n");
  auto options = parse({config.c_str(), "--max-requests=9"});
  assert_ok(options);
  write_test_file(
      options->config,
      "[quernd]\nmax-clients = 8\ncache-dir = two\nworkers = 2\nmax-requests = 10\nallow-uids = 5\n");
  const auto fresh = parse({config.c_str(), "--max-requests=9"});
  assert_ok(fresh);
  const ReloadedOptions result = reload_options(*options, *fresh);
  assert_true(result.changed == (std::vector<std::string>{"allow-uids", "log-level", "max-clients"}));
  assert_true(result.restart == std::vector<std::string>{"cache-dir"});
  assert_int_equal(options->max_clients, 8);
  assert_int_equal(options->max_requests, 9);  // the command line still wins
  assert_true(options->log_level == LogLevel::info);
  assert_int_equal(options->allow_uids.size(), 1);
  assert_contains(options->cache_dir, "/one");
  // Once taken it is no news; what needs a restart stays so.
  const ReloadedOptions again = reload_options(*options, *fresh);
  assert_true(again.changed.empty() && again.restart == result.restart);
}

void relative_paths_belong_to_where_they_are_written(void**) {
  const std::string here = std::filesystem::current_path();
  auto options = parse({"--cache-dir=relcache", "--log-file=./logs/../q.log"});
  assert_ok(options);
  assert_text_equal(options->cache_dir, here + "/relcache");
  assert_text_equal(options->log_file, here + "/q.log");
  assert_text_equal(options->worker, "");
  const std::string config = config_file("[quernd]\ncache-dir = kept\nnvrtc = /opt/nvrtc\n");
  const std::string folder = std::filesystem::path(config.substr(9)).parent_path();
  options = parse({config.c_str()});
  assert_ok(options);
  assert_text_equal(options->cache_dir, folder + "/kept");
  assert_text_equal(options->nvrtc, "/opt/nvrtc");
  setenv("QUERN_CACHE_DIR", "mine", 1);
  options = parse({config.c_str()});
  unsetenv("QUERN_CACHE_DIR");
  assert_text_equal(options->cache_dir, here + "/mine");
}

void users_are_listed(void**) {
  const auto options = parse({"--allow-uids=1,20,300"});
  assert_ok(options);
  assert_true(options->allow_uids == std::vector<uid_t>({1, 20, 300}));
  assert_error(parse({"--allow-uids=1,,2"}), ErrorCode::INVALID_ARGUMENT);
  assert_error(parse({"--allow-uids=4294967295"}), ErrorCode::INVALID_ARGUMENT, "no user");
}

void bytes_have_units(void**) {
  assert_int_equal(*parse_bytes("1000"), 1000);
  assert_int_equal(*parse_bytes("3K"), 3072);
  assert_int_equal(*parse_bytes("2T"), uint64_t{2} << 40);
  for (const char* bad : {"", "M", "-1", "1.5G", "1 G", "5GB", "99999999T"})
    assert_error(parse_bytes(bad), ErrorCode::INVALID_ARGUMENT);
}

void searches_have_time_limits(void**) {
  const auto defaults = parse({});
  assert_int_equal(defaults->search_seconds, 10);
  assert_int_equal(defaults->optimize_seconds, 25);
  const auto options = parse({"--search-seconds=3", "--optimize-seconds", "120"});
  assert_ok(options);
  assert_int_equal(options->search_seconds, 3);
  assert_int_equal(options->optimize_seconds, 120);
  assert_error(parse({"--search-seconds=0"}), ErrorCode::INVALID_ARGUMENT, "within 1 to 3600");
}

void help_names_every_setting(void**) {
  for (const char* name :
       {"--socket=PATH", "--workers=N", "--allow-uids=UID", "--drain-seconds=N", "--foreground", "SIGHUP"})
    assert_contains(options_help(), name);
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {
      cmocka_unit_test_setup(the_command_line_beats_the_environment_beats_the_file, clean_environment),
      cmocka_unit_test_setup(switches_take_no_value_or_yes_or_no, clean_environment),
      cmocka_unit_test_setup(bad_settings_are_named_with_their_place, clean_environment),
      cmocka_unit_test_setup(a_fleet_needs_an_address_that_is_one, clean_environment),
      cmocka_unit_test_setup(what_may_change_while_it_runs_is_taken, clean_environment),
      cmocka_unit_test_setup(relative_paths_belong_to_where_they_are_written, clean_environment),
      cmocka_unit_test_setup(users_are_listed, clean_environment),
      cmocka_unit_test_setup(bytes_have_units, clean_environment),
      cmocka_unit_test_setup(searches_have_time_limits, clean_environment),
      cmocka_unit_test_setup(help_names_every_setting, clean_environment),
  };
  return cmocka_run_group_tests_name("options", tests, nullptr, nullptr);
}
