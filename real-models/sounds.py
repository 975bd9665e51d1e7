"""The sounds that are transcribed: those of the folder `sounds`, and one of them all, longer than a window of Whisper."""

import wave
from pathlib import Path

import numpy

RATE = 16000


def all():
    """Name and 16-bit samples of each."""
    read = {path.stem: samples(path) for path in sorted((Path(__file__).parent / "sounds").glob("*.wav"))}
    pause = numpy.zeros(RATE, dtype="<i2")
    parts = [read[name] for name in ("weather", "hello", "fox") * 3]
    joined = [part for sound in parts for part in (sound, pause)]
    return [*read.items(), ("long", numpy.concatenate(joined))]


def samples(path):
    with wave.open(str(path)) as sound:
        assert (sound.getnchannels(), sound.getsampwidth(), sound.getframerate()) == (1, 2, RATE), path
        return numpy.frombuffer(sound.readframes(sound.getnframes()), "<i2")


def write(path, data):
    with wave.open(str(path), "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(RATE)
        sound.writeframes(data.tobytes())
