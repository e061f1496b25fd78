#include "core/base/private_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace quern {

namespace {

Status refusal(const std::string& path, const std::string& why) {
  return Status(ErrorCode::PERMISSION, path + " " + why);
}

Status check_file(const std::string& path, const struct stat& info) {
  if (S_ISLNK(info.st_mode)) return refusal(path, "is a symbolic link; remove it");
  if (!S_ISREG(info.st_mode)) return refusal(path, "is not a regular file; remove it");
  if (info.st_uid != geteuid() && info.st_uid != 0)
    return refusal(path, "belongs to user " + std::to_string(info.st_uid) + "; remove it");
  if (info.st_mode & (S_IWGRP | S_IWOTH)) return refusal(path, "can be written by others; remove it");
  if (info.st_nlink > 1) return refusal(path, "has another name as well; remove it");
  return {};
}

}  // namespace

Status check_private_directory(const std::string& path, const std::vector<uid_t>& trusted) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0)
    return Status(errno == ENOENT ? ErrorCode::NOT_FOUND : ErrorCode::IO, path + ": " + std::strerror(errno));
  if (!S_ISDIR(info.st_mode)) return refusal(path, "is not a directory; remove it");
  const bool own = info.st_uid == geteuid() || info.st_uid == 0 ||
                   std::find(trusted.begin(), trusted.end(), info.st_uid) != trusted.end();
  if (!own) return refusal(path, "belongs to user " + std::to_string(info.st_uid));
  if (info.st_mode & (S_IWGRP | S_IWOTH))
    return refusal(
        path, "can be written by others, who may have put files there; empty it and run: chmod 700 " + path);
  return {};
}

Status check_private_file(const std::string& path) {
  struct stat info;
  if (lstat(path.c_str(), &info) == 0) return check_file(path, info);
  return errno == ENOENT ? Status() : Status(ErrorCode::IO, path + ": " + std::strerror(errno));
}

int open_private_file(const std::string& path, int flags) {
  const int fd = open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return -1;
  struct stat info;
  if (fstat(fd, &info) == 0 && check_file(path, info).ok()) return fd;
  close(fd);
  errno = EPERM;
  return -1;
}

}  // namespace quern
