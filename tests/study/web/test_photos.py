"""Photos that participants hand in: consent, hostile files, whose they are, what is left of them, deletion."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import pandas
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from sqlalchemy import select

from edpbrl_gym.study.config_reading import Mistakes, read_config
from edpbrl_gym.study.export import export
from edpbrl_gym.study.own_photos import reencoded
from edpbrl_gym.study.photo_store import PhotoStore
from edpbrl_gym.study.records import NotAskingError
from edpbrl_gym.study.tables import photos
from edpbrl_gym.study.web import guards
from edpbrl_gym.study.web import photos as photo_pages
from edpbrl_gym.study.wording import load_messages
from tests.helpers.picture_files import bomb, encoded, made_picture
from tests.helpers.studies import CHECKED, SMALL
from tests.helpers.study_server import exchange, listening, status_of

pytestmark = pytest.mark.needs("study", "pictures")

TABLE = '\n[own_photos]\nversion = "p1"\nleast = 2\nmost = 4\nmegabytes = 1\n'
OWN = SMALL + TABLE
PLACE = (48.0, 12.0, 30.5)  # degrees, minutes and seconds, where a photo was taken


def photo(number: int = 0, size=(64, 48), kind: str = "JPEG", **options) -> bytes:
    return encoded(made_picture(number, size), kind, **options)


def located(orientation: int = 6) -> bytes:
    """A JPEG as a phone writes it: turned by its orientation; with place, time, device, a comment, XMP, a profile."""
    exif = Image.Exif()
    exif[0x0112], exif[0x010F], exif[0x0132] = orientation, "SecretPhone", "2026:11:28 10:00:00"
    gps = exif.get_ifd(0x8825)
    gps[1], gps[2], gps[3], gps[4] = "N", PLACE, "E", PLACE
    return photo(exif=exif, comment=b"secret comment", xmp=b"<x:xmpmeta>secret place</x:xmpmeta>",
                 icc_profile=b"secret profile" * 20)  # fmt: skip


def hand_in(person, *files, agree=True, names=None, **options):
    """Post files as a browser without JavaScript does."""
    data = {"token": person.form("/photos")["fields"]["token"], **({"agree": "yes"} if agree else {})}
    named = names or [f"IMG_secret_{number}.jpg" for number in range(len(files))]
    sent = [("photos", (name, file, "image/jpeg")) for name, file in zip(named, files, strict=True)]
    person.page = person.client.post("/photos", data=data, files=sent, **options)
    return person.page


def arrived(served, name="p1"):
    person = served.person()
    person.arrive(PROLIFIC_PID=name)
    assert person.at == "/photos", person.page.text
    return person


def shown(person) -> list[str]:
    return re.findall(r'src="(/photos/[^"]+)"', person.page.text)


def stored(served) -> list[bytes]:
    with served.store.database.reading() as connection:
        return [bytes(one) for one in connection.execute(select(photos.c.jpeg).order_by(photos.c.id)).scalars()]


def kinds(served) -> list[str]:
    [record] = served.store.records()
    return [event["kind"] for event in record.events if "photo" in event["kind"]]


def rate(person, level=4):
    names = person.form("/photos/rating")["choices"]
    return person.post("/photos/rating", **dict.fromkeys(names, level))


def test_photos_are_handed_in_rated_and_the_study_goes_on_without_javascript(serve):
    served = serve(CHECKED.replace("[[pages]]", TABLE + "[[pages]]"))
    person = arrived(served)
    assert "For this study we ask you" in person.page.text and not shown(person)
    assert person.get("/question").url.path == "/photos" == person.get("/instructions").url.path
    person.post("/photos/next", to="/photos/next")
    assert person.page.status_code == 422 and "at least 2 photos; so far there are 0" in person.page.text
    hand_in(person, photo(1), photo(2), photo(1))
    assert person.page.status_code == 200 and person.at == "/photos" and len(shown(person)) == 2  # one came twice
    hand_in(person, photo(3), agree=False)  # agreed before
    first = shown(person)[0]
    person.post("/photos/remove", remove=first.removeprefix("/photos/").removesuffix(".jpg"))
    assert len(shown(person)) == 2 and person.client.get(first).status_code == 404
    person.post("/photos/next")
    assert person.at == "/photos" and "How much do you like photo 2?" in person.page.text
    [one, two] = person.form("/photos/rating")["choices"]
    person.post("/photos/rating", **{one: 5})
    assert person.page.status_code == 422 and person.page.text.count('class="problem"') == 1
    assert f'name="{one}" value="5" checked' in person.page.text
    person.post("/photos/rating", **{one: 5, two: 1})
    assert person.at == "/page" and 'name="q-what"' in person.page.text  # the pages about the instructions follow
    person.post("/page", **{"q-what": 1})
    assert person.at == "/question" and person.get("/photos").url.path == "/question"
    assert hand_in_late(served, person).url.path == "/question" and len(stored(served)) == 2
    assert kinds(served) == [
        *["photos_agreed", "photo_added", "photo_added", "photo_added", "photo_removed", "photos_done", "photos_rated"]
    ]
    assert [one.rating for one in PhotoStore(served.store.database).of(1)] == [5, 1]


def hand_in_late(served, person):
    files = [("photos", ("a.jpg", photo(9), "image/jpeg"))]
    return person.client.post("/photos", data={"token": served.token(person), "agree": "yes"}, files=files)


def test_nothing_is_kept_without_consent_to_the_photos_and_its_version_is_stored(serve):
    served = serve(OWN)
    person = arrived(served)
    assert hand_in(person, photo(1), agree=False).status_code == 422
    assert "tick the box" in person.page.text and not stored(served) and not kinds(served)
    assert hand_in(person, agree=True).status_code in (400, 422) and not kinds(served)
    person.get("/photos")
    hand_in(person, photo(1))
    [record] = served.store.records()
    assert [one["detail"] for one in record.events if one["kind"] == "photos_agreed"] == [{"version": "p1"}]


def test_nothing_that_a_camera_wrote_survives_and_photos_are_upright(serve):
    data = located()
    with Image.open(io.BytesIO(data)) as before:
        assert before.getexif().get_ifd(0x8825)[2] == PLACE and before.size == (64, 48)
    info = PngInfo()
    info.add_text("Comment", "secret text")
    png = encoded(made_picture(2, (3000, 1000)), "PNG", pnginfo=info, exif=Image.Exif())
    served = serve(OWN)
    person = arrived(served)
    assert hand_in(person, data, png, photo(4, kind="WEBP")).status_code == 200
    kept = stored(served)
    sizes = []
    for one in kept:
        with Image.open(io.BytesIO(one)) as picture:
            sizes.append(picture.size)
            assert picture.format == "JPEG" and not picture.getexif()
            assert not {"exif", "comment", "xmp", "icc_profile", "dpi"} & set(picture.info)
        for trace in (b"secret", b"Secret", b"Exif", b"GPS", b"xmpmeta", b"2026:11:28", b"IMG_", b"Photoshop"):
            assert trace not in one
    assert sizes == [(48, 64), (1600, 533), (64, 48)]  # turned by its orientation; made smaller; as it was
    with Image.open(io.BytesIO(kept[0])) as turned:
        corner = np.asarray(turned.convert("L"), float)[:10, -10:]  # the bright corner, once at the left
    assert corner.mean() > 200
    served.store.close()
    everything = b"".join(path.read_bytes() for path in Path(served.config.folder).glob("study.db*"))
    assert b"IMG_secret" not in everything and b"SecretPhone" not in everything


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


HOSTILE = [
    (b"", "type"),
    (b"GIF89a" + b"\0" * 100, "type"),
    (photo(kind="GIF"), "type"),
    (photo(kind="BMP"), "type"),
    (photo(kind="TIFF"), "type"),
    (b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>", "type"),
    (b"<html><script>alert(1)</script>", "type"),
    (b"%!PS-Adobe-3.0 EPSF-3.0\n", "type"),
    (b"\0\0\0\x18ftypheic" + b"\0" * 200, "heic"),
    (cut(photo(5, (400, 300))), "unreadable"),
    (cut(photo(5, (400, 300), "PNG")), "unreadable"),
    (b"\xff\xd8\xff" + b"\0" * 500, "unreadable"),
    (bomb(), "unreadable"),
    (b"RIFF\xff\xff\xff\xffWEBP" + b"\0" * 100, "unreadable"),
    (photo(kind="JPEG") + b"\0" * 2**20, "large"),
]


@pytest.mark.parametrize(("language", "data", "why"), [("en", *HOSTILE[0])] + [("de", *one) for one in HOSTILE[1:]])
def test_a_file_that_is_no_photo_is_refused_at_its_name_and_others_are_kept(serve, language, data, why):
    served = serve(OWN.replace("seed = 3", 'seed = 3\nlanguages = ["en", "de"]'), languages=("de",))
    person = served.person(headers={"accept-language": language})
    person.arrive(PROLIFIC_PID="p1")
    hand_in(person, photo(1), data, names=["good.jpg", "<b>bad</b>.jpg"])
    said = load_messages(language)(f"photos_{why}", millions=50, megabytes=1, most=4)
    assert person.page.status_code == 422 and f"<bdi>&lt;b&gt;bad&lt;/b&gt;.jpg</bdi>: {said}" in person.page.text
    assert len(shown(person)) == 1 == len(stored(served)) and "good.jpg" not in person.page.text


def test_no_more_photos_are_stored_than_the_most(serve):
    served = serve(OWN)
    person = arrived(served)
    hand_in(person, *map(photo, range(6)))
    assert person.page.status_code == 422 and person.page.text.count("4 photos are the most") == 2
    assert len(stored(served)) == 4 and 'type="file"' not in person.page.text


def test_a_photo_is_served_to_its_owner_only_and_never_cached(serve):
    served = serve(OWN)
    owner, other, stranger = arrived(served, "p1"), arrived(served, "p2"), served.person()
    hand_in(owner, photo(1))
    [address] = shown(owner)
    assert len(address) > 40
    found = owner.client.get(address)
    assert found.content == stored(served)[0] and found.headers["content-type"] == "image/jpeg"
    assert found.headers["cache-control"] == "private, no-store"
    assert found.headers["x-content-type-options"] == "nosniff"
    assert other.client.get(address).status_code == 404
    assert stranger.client.get(address).status_code == 403
    key = address.removeprefix("/photos/").removesuffix(".jpg")
    hand_in(other, photo(2))
    other.post("/photos/remove", remove=key)  # of somebody else
    assert owner.client.get(address).status_code == 200 and len(stored(served)) == 2


def test_only_posts_of_the_study_store_photos(serve):
    served = serve(OWN)
    person = arrived(served)
    files = [("photos", ("a.jpg", photo(1), "image/jpeg"))]
    good = {"token": person.form("/photos")["fields"]["token"], "agree": "yes"}
    send = person.client.post
    assert send("/photos", data=good, files=files, headers={"origin": "https://evil.example"}).status_code == 403
    assert send("/photos", data={**good, "token": "x"}, files=files).status_code == 403
    assert send("/photos", data={"agree": "yes"}, files=files).status_code == 403
    assert served.person().client.post("/photos", data=good, files=files).status_code == 403
    assert send("/photos", data=good).status_code == 400  # no form with files
    assert send("/photos", content=b"--x\r\n" * 10, headers={"content-type": "multipart/form-data; boundary=x"})\
        .status_code in (400, 403)  # fmt: skip
    assert not stored(served)


def test_damaged_forms_are_refused_and_store_no_damaged_photo(serve, monkeypatch):
    served = serve(OWN)
    person = arrived(served)
    monkeypatch.setattr(guards.RateLimit, "allows", lambda self, name: True)
    token = person.form("/photos")["fields"]["token"]
    fields = [("token", "", token.encode()), ("agree", "", b"yes"), ("photos", '; filename="a.jpg"', photo(1, (8, 8)))]
    parts = [
        f'--b\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'.encode() + value + b"\r\n"
        for name, more, value in fields
    ]
    whole = b"".join(parts) + b"--b--\r\n"
    headers = {"content-type": "multipart/form-data; boundary=b"}
    rng, seen = np.random.default_rng(0), set()
    for _ in range(150):
        body = bytearray(whole)
        for place in rng.integers(0, whole.index(b"\xff\xd8"), rng.integers(1, 4)):  # before the photo
            body[place] = rng.integers(0, 256)
        cut_off = int(rng.integers(0, len(body))) if rng.random() < 0.3 else len(body)
        seen.add(person.client.post("/photos", content=bytes(body[:cut_off]), headers=headers).status_code)
    assert seen <= {200, 400, 403, 422} and {200, 400, 403} <= seen
    assert set(stored(served)) <= {reencoded(photo(1, (8, 8))).jpeg}


def test_a_study_without_the_table_has_no_such_pages(serve):
    served = serve()
    person = served.begin(PROLIFIC_PID="p1")
    assert person.get("/photos").status_code == 404
    assert person.client.post("/photos", files=[("photos", ("a.jpg", photo(1)))]).status_code == 404


def test_files_that_are_too_large_together_are_refused_with_what_to_do(serve):
    served = serve(OWN)
    person = arrived(served)
    hand_in(person, *[b"\xff\xd8\xff" + b"x" * 2**20] * 5)
    assert person.page.status_code == 413 and "at most 4 MB" in person.page.text and not stored(served)


def test_a_body_that_comes_too_slowly_ends(serve, monkeypatch):
    monkeypatch.setattr(guards, "_BODY_TIME", 0.3)
    served = serve(OWN)
    person = arrived(served)
    cookies = "; ".join(f"{name}={value}" for name, value in person.client.cookies.items())
    head = (
        f"POST /photos HTTP/1.1\r\nHost: study.test\r\nCookie: {cookies}\r\nContent-Length: 100000\r\n"
        "Content-Type: multipart/form-data; boundary=x\r\n\r\n--x\r\n"
    )
    with listening(served.app) as port:
        assert status_of(exchange(port, head.encode(), patience=20.0)) == 408
    assert not stored(served)


def test_a_second_upload_at_the_same_time_is_refused(serve, monkeypatch):
    served = serve(OWN)
    person = arrived(served)
    seen = []

    def reading(data, first=photo_pages.reencoded):
        if not seen:  # while the first form is read
            seen.append(0)
            again = served.person()
            again.client.cookies = person.client.cookies
            seen.append(hand_in_late(served, again).status_code)
        return first(data)

    monkeypatch.setattr(photo_pages, "reencoded", reading)
    assert hand_in(person, photo(1)).status_code == 200
    assert seen == [0, 429] and len(stored(served)) == 1


def test_more_uploads_than_a_server_takes_are_told_to_wait(serve, monkeypatch, caplog):
    monkeypatch.setattr(photo_pages, "_UPLOADS", 1)
    monkeypatch.setattr(photo_pages, "_PATIENCE", 0.1)
    served = serve(OWN)
    first, second, seen = arrived(served, "one"), arrived(served, "two"), []

    def reading(data, read=photo_pages.reencoded):
        if not seen:
            seen.append(0)
            seen.append(hand_in_late(served, second))
        return read(data)

    monkeypatch.setattr(photo_pages, "reencoded", reading)
    assert hand_in(first, photo(1)).status_code == 200
    assert seen[1].status_code == 429 and "too many requests at once" in seen[1].text
    assert "(429): Expected at most 1 uploads at once" in caplog.text  # no fault of the database, which a 503 is


@pytest.mark.parametrize("required", [True, False])
def test_who_hands_in_none_takes_no_part_or_goes_on(serve, required):
    served = serve(OWN + f"required = {str(required).lower()}\n")
    person = arrived(served)
    hand_in(person, photo(1))
    person.post("/photos/next", to="/photos/decline")
    assert person.at == ("/end" if required else "/instructions") and not stored(served)
    [participant] = served.store.participants()
    assert participant.status == ("withdrawn" if required else "consented")
    if not required:
        person.post("/instructions")
        assert person.at == "/question"


def test_photos_go_when_their_owner_withdraws_and_nobody_adds_any_then(serve):
    served = serve(OWN)
    person, other = arrived(served, "p1"), arrived(served, "p2")
    for one, number in ((person, 1), (other, 2)):
        hand_in(one, photo(number), photo(number + 10))
    gone, _, kept, _ = stored(served)
    store = PhotoStore(served.store.database)
    key = store.of(1)[0].key
    person.get("/withdraw")
    person.post("/withdraw")
    assert store.of(1) == [] and len(store.of(2)) == 2
    assert person.client.get(f"/photos/{key}.jpg").status_code == 404
    with pytest.raises(NotAskingError):  # one that was on its way
        store.add(1, reencoded(photo(3)), 4)
    served.close()
    left = b"".join(path.read_bytes() for path in Path(served.config.folder).glob("study.db*"))
    assert gone[600:1000] not in left and kept[600:1000] in left


def test_photos_go_with_their_owner_and_are_overwritten(serve):
    served = serve(OWN + "rated = false\n")
    person, other = arrived(served, "p1"), arrived(served, "p2")
    for one, number in ((person, 1), (other, 2)):
        hand_in(one, photo(number), photo(number + 10))
        one.post("/photos/next")
        assert one.at == "/instructions"
        one.post("/instructions")
        one.play()
    first, _, kept, _ = stored(served)
    address = f"/photos/{PhotoStore(served.store.database).of(1)[0].key}.jpg"
    assert person.client.get(address).status_code == 200
    served.store.delete(1)
    assert len(stored(served)) == 2 and person.client.get(address).status_code == 403
    served.close()
    left = b"".join(path.read_bytes() for path in Path(served.config.folder).glob("study.db*"))
    assert first[600:1000] not in left and kept[600:1000] in left


def test_an_export_has_no_photo_unless_it_names_people(serve, tmp_path):
    served = serve(OWN)
    person = arrived(served, "p1")
    hand_in(person, photo(1), photo(2, (30, 60)))
    person.post("/photos/next")
    rate(person)
    person.post("/instructions")
    person.play()
    export(served.store, served.queue.materials, tmp_path / "plain")
    table = pandas.read_csv(tmp_path / "plain" / "own_photos.csv")
    assert table[["photo", "width", "height", "rating"]].to_numpy().tolist() == [[1, 64, 48, 4], [2, 30, 60, 4]]
    meanings = pandas.read_csv(tmp_path / "plain" / "dictionary.csv")
    assert set(table) == set(meanings[meanings.file == "own_photos"].column)
    keys = [one.key for one in PhotoStore(served.store.database).of(1)]
    for path in (tmp_path / "plain").rglob("*"):
        assert path.suffix != ".jpg" and not (path.is_file() and any(key.encode() in path.read_bytes() for key in keys))
    export(served.store, served.queue.materials, tmp_path / "named", identified=True)
    [who] = set(table.participant)
    files = [tmp_path / "named" / "photos" / f"{who}-{number}.jpg" for number in (1, 2)]
    assert [path.read_bytes() for path in files] == stored(served)


def test_the_configuration_is_checked(tmp_path, serve):
    served = serve(OWN)
    folder = served.config.folder
    plain = serve().config
    assert served.config.own_photos is not None and served.config.fingerprint != plain.fingerprint
    (folder / "study.toml").write_text(OWN.replace("least = 2", "least = 9").replace('version = "p1"\n', ""))
    (folder / "texts" / "photos.en.txt").unlink()
    with pytest.raises(Mistakes) as error:
        read_config(folder)
    said = " ".join(error.value.mistakes)
    assert "own_photos.version" in said and "own_photos.least" in said and "photos.en.txt" in said
    assert len(error.value.mistakes) == 3
