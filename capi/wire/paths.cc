#include "capi/wire/paths.h"

#include <pwd.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace quern {

namespace {

// The XDG specification says that a relative path in one of its variables must be ignored.
std::string absolute_env(const char* name) {
  const char* value = std::getenv(name);
  return value && value[0] == '/' ? value : "";
}

std::string env(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::string home_dir() {
  if (std::string home = absolute_env("HOME"); !home.empty()) return home;
  struct passwd entry, *found = nullptr;
  std::vector<char> buffer(16384);
  if (getpwuid_r(geteuid(), &entry, buffer.data(), buffer.size(), &found) == 0 && found) return found->pw_dir;
  return "/";
}

std::string private_tmp_dir() { return "/tmp/quern-" + std::to_string(geteuid()); }

std::string parent_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

Status make_dir(const std::string& path) {
  if (mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return {};
  return Status(errno == EACCES || errno == EPERM || errno == EROFS ? ErrorCode::PERMISSION : ErrorCode::IO,
                "cannot make the directory " + path + ": " + std::strerror(errno));
}

}  // namespace

std::string default_socket_path() {
  if (std::string path = env("QUERN_SOCKET"); !path.empty()) return path;
  if (std::string dir = absolute_env("XDG_RUNTIME_DIR"); !dir.empty()) return dir + "/quern/quernd.sock";
  return private_tmp_dir() + "/quernd.sock";
}

std::string default_cache_dir() {
  if (std::string path = env("QUERN_CACHE_DIR"); !path.empty()) return path;
  if (std::string dir = absolute_env("XDG_CACHE_HOME"); !dir.empty()) return dir + "/quern";
  return home_dir() + "/.cache/quern";
}

std::string default_config_path() {
  if (std::string path = env("QUERN_CONFIG"); !path.empty()) return path;
  if (std::string dir = absolute_env("XDG_CONFIG_HOME"); !dir.empty()) return dir + "/quern/quern.conf";
  return home_dir() + "/.config/quern/quern.conf";
}

Status check_socket_path(const std::string& path) {
  if (path.empty()) return Status(ErrorCode::INVALID_ARGUMENT, "the path of the socket is empty");
  constexpr size_t kMax = sizeof(sockaddr_un::sun_path) - 1;
  if (path.size() > kMax)
    return Status(ErrorCode::INVALID_ARGUMENT, "the path of the socket has " + std::to_string(path.size()) +
                                                   " bytes and a Unix socket can have " +
                                                   std::to_string(kMax) +
                                                   "; set QUERN_SOCKET to a shorter one: " + path);
  return {};
}

std::vector<uid_t> trusted_users() {
  std::vector<uid_t> users;
  const std::string list = env("QUERN_TRUST_UIDS");
  for (size_t start = 0; start < list.size();) {
    const size_t end = std::min(list.find(',', start), list.size());
    uid_t user = 0;
    const auto [rest, error] = std::from_chars(list.data() + start, list.data() + end, user);
    if (error == std::errc() && rest == list.data() + end) users.push_back(user);
    start = end + 1;
  }
  return users;
}

Status check_socket_dir(const std::string& socket_path, const std::vector<uid_t>& trusted) {
  if (Status status = check_socket_path(socket_path); !status.ok()) return status;
  const std::string dir = parent_of(socket_path);
  struct stat info;
  // The default directory below /tmp must be a real one; elsewhere a link is the user's or the
  // administrator's choice.
  const bool below_tmp = dir == private_tmp_dir();
  if ((below_tmp ? lstat(dir.c_str(), &info) : stat(dir.c_str(), &info)) != 0)
    return Status(errno == ENOENT ? ErrorCode::NOT_FOUND : ErrorCode::IO,
                  "the directory of the socket, " + dir + ": " + std::strerror(errno));
  if (!S_ISDIR(info.st_mode)) return Status(ErrorCode::PERMISSION, dir + " is not a directory; remove it");
  if (info.st_uid != geteuid() && info.st_uid != 0 &&
      std::find(trusted.begin(), trusted.end(), info.st_uid) == trusted.end())
    return Status(ErrorCode::PERMISSION,
                  "the directory of the socket, " + dir + ", belongs to user " + std::to_string(info.st_uid) +
                      "; set QUERN_SOCKET to a path in one of yours, or QUERN_TRUST_UIDS if "
                      "that user runs the daemon for you");
  const bool others_write = info.st_mode & (S_IWGRP | S_IWOTH);
  if (others_write && (below_tmp || !(info.st_mode & S_ISVTX)))
    return Status(ErrorCode::PERMISSION,
                  "others can write to the directory of the socket, " + dir + "; run: chmod 700 " + dir);
  return {};
}

Status make_socket_dir(const std::string& socket_path) {
  if (Status status = check_socket_path(socket_path); !status.ok()) return status;
  if (Status status = make_dir(parent_of(socket_path)); !status.ok()) return status;
  return check_socket_dir(socket_path);
}

Status make_dirs(const std::string& path) {
  for (size_t end = path.find('/', 1); end != std::string::npos; end = path.find('/', end + 1)) {
    // What exists need not be writable, so a failure above the last component shows in the next one.
    Status ignored = make_dir(path.substr(0, end));
    (void)ignored;
  }
  if (Status status = make_dir(path); !status.ok()) return status;
  struct stat info;
  if (stat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode))
    return Status(ErrorCode::IO, path + " is not a directory");
  return {};
}

}  // namespace quern
