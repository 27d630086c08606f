"""A pod's volumes as folders of this machine, with the owner and the modes that a kubelet gives them."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

from tests.cluster.api import Api, Object

Files = dict[str, tuple[bytes, int]]


class Volumes:
    """Those of one pod below `folder`; claims below `claims`, whichever pod has them."""

    def __init__(self, api: Api, pod: Object, folder: Path, claims: Path) -> None:
        self._api = api
        self._pod = pod
        self._folder = folder
        self._claims = claims
        self._space = pod["metadata"]["namespace"]
        self._group = pod["spec"].get("securityContext", {}).get("fsGroup", 0)
        self._tokens: dict[str, str] = {}

    def place(self, name: str) -> Path:
        """The folder of a volume."""
        (volume,) = [each for each in self._pod["spec"]["volumes"] if each["name"] == name]
        claim = volume.get("persistentVolumeClaim")
        return self._claims / self._space / claim["claimName"] if claim else self._folder / name

    def make(self) -> str | None:
        """Make all, or fill them again with what is new; the reason where one cannot be made yet."""
        for volume in self._pod["spec"].get("volumes", ()):
            place = self.place(volume["name"])
            is_new = not place.exists()
            place.mkdir(parents=True, exist_ok=True)
            if volume.keys() & {"emptyDir", "persistentVolumeClaim"}:
                if is_new:
                    os.chown(place, 0, self._group)
                    place.chmod(0o2777 if "emptyDir" in volume else 0o2775)
                continue
            files = self._files(volume)
            if files is None:
                return f"volume {volume['name']} is of something that is missing"
            self._write(place, files)
        return None

    def _write(self, place: Path, files: Files) -> None:
        for path, (content, mode) in files.items():
            file = place / path
            if file.exists() and file.read_bytes() == content:
                continue
            part = file.with_name(f".{file.name}")
            part.write_bytes(content)
            os.chown(part, 0, self._group)
            # The group reads what the owner does: a kubelet's rule for fsGroup.
            part.chmod(mode | (mode >> 3 & 0o070) if self._group else mode)
            part.replace(file)

    def _files(self, volume: Object) -> Files | None:
        if "projected" in volume:
            mode = volume["projected"].get("defaultMode", 0o644)
            found: Files = {}
            for source in volume["projected"]["sources"]:
                files = self._source(volume["name"], source, mode)
                if files is None:
                    return None
                found |= files
            return found
        ((kind, about),) = [(kind, about) for kind, about in volume.items() if kind != "name"]
        about = about | ({"name": about["secretName"]} if kind == "secret" else {})
        return self._source(volume["name"], {kind: about}, about.get("defaultMode", 0o644))

    def _source(self, volume: str, source: Object, mode: int) -> Files | None:
        ((kind, about),) = source.items()
        match kind:
            case "configMap" | "secret":
                found = self._api.find(f"/api/v1/namespaces/{self._space}/{kind.lower()}s/{about['name']}")
                if not found:
                    return None
                texts = {key: text.encode() for key, text in found.get("data", {}).items()}
                if kind == "secret":
                    texts = {key: base64.b64decode(text) for key, text in texts.items()}
                named = about.get("items") or [{"key": key, "path": key} for key in texts]
                return {each["path"]: (texts[each["key"]], mode) for each in named}
            case "serviceAccountToken":
                return {about["path"]: (self._token(volume, about).encode(), mode)}
            case "downwardAPI":
                texts = {
                    each["path"]: field(self._pod, each["fieldRef"]["fieldPath"]).encode()
                    for each in about["items"]
                }
                return {path: (text, mode) for path, text in texts.items()}
        raise ValueError(f"a volume of kind {kind}")

    def _token(self, volume: str, about: Object) -> str:
        if volume not in self._tokens:
            name = self._pod["spec"]["serviceAccountName"]
            bound = {
                "kind": "Pod",
                "apiVersion": "v1",
                "name": self._pod["metadata"]["name"],
                "uid": self._pod["metadata"]["uid"],
            }
            asked = {
                "spec": {
                    "audiences": [],
                    "expirationSeconds": about.get("expirationSeconds", 3600),
                    "boundObjectRef": bound,
                }
            }
            path = f"/api/v1/namespaces/{self._space}/serviceaccounts/{name}/token"
            self._tokens[volume] = self._api.call("POST", path, asked)["status"]["token"]
        return self._tokens[volume]


def field(pod: Object, path: str) -> str:
    """The text at a path such as `metadata.name`."""
    found: Any = pod
    for part in path.split("."):
        found = found[part]
    return found if isinstance(found, str) else json.dumps(found)
