"""The list of an artifact's packages and files: SPDX 2.3 as JSON."""

import datetime
import hashlib
import json
import re


def _id(kind, name):
    return "SPDXRef-%s-%s" % (kind, re.sub(r"[^A-Za-z0-9.-]", "-", name))


def _package(package, architecture):
    result = {
        "SPDXID": _id("Package", package.name),
        "name": package.name,
        "versionInfo": package.version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "NOASSERTION",
        "copyrightText": "NOASSERTION",
    }
    if package.is_debian:
        result["supplier"] = "Organization: Debian"
        result["externalRefs"] = [{
            "referenceCategory": "PACKAGE-MANAGER",
            "referenceType": "purl",
            "referenceLocator": "pkg:deb/debian/%s@%s?arch=%s" % (
                package.name.replace("+", "%2B"),
                package.version.replace("+", "%2B").replace(":", "%3A"),
                architecture),
        }]
    return result


def _file(path, entry):
    sha1, sha256 = hashlib.sha1(), hashlib.sha256()
    with entry.open() as data:
        while piece := data.read(1 << 20):
            sha1.update(piece)
            sha256.update(piece)
    return {
        "SPDXID": _id("File", path),
        "fileName": "./" + path,
        "checksums": [
            {"algorithm": "SHA1", "checksumValue": sha1.hexdigest()},
            {"algorithm": "SHA256", "checksumValue": sha256.hexdigest()},
        ],
        "licenseConcluded": "NOASSERTION",
        "copyrightText": "NOASSERTION",
    }


def time_text(epoch):
    """Seconds since 1970 in the form of RFC 3339."""
    return datetime.datetime.fromtimestamp(
        epoch, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def document(title, revision, created, architecture, packages, entries):
    """The SBOM's bytes.

    `packages` are Package; the first is the one that the artifact is about. Every
    file of `entries` names one of them.
    """
    packages = packages[:1] + sorted(packages[1:], key=lambda p: p.name)
    files, relationships = [], []

    def relate(one, kind, other):
        relationships.append({"spdxElementId": one, "relationshipType": kind,
                              "relatedSpdxElement": other})

    relate("SPDXRef-DOCUMENT", "DESCRIBES", _id("Package", packages[0].name))
    for package in packages[1:]:
        relate(_id("Package", packages[0].name), "DEPENDS_ON",
               _id("Package", package.name))
    known = {package.name for package in packages}
    for path, entry in sorted(entries.items()):
        if not entry.is_file:
            continue
        assert entry.package in known, path
        files.append(_file(path, entry))
        relate(_id("Package", entry.package), "CONTAINS", _id("File", path))
    return (json.dumps({
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": title,
        "documentNamespace": "https://spdx.org/spdxdocs/%s-%s" % (
            title.replace(":", "-"), revision),
        "creationInfo": {"created": created,
                         "creators": ["Tool: atoll-deploy"]},
        "packages": [_package(p, architecture) for p in packages],
        "files": files,
        "relationships": relationships,
    }, indent=1, sort_keys=True) + "\n").encode()
