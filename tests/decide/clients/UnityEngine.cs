// The parts of Unity that the documented script uses, to run it without Unity. This JsonUtility reads only texts.
using System;
using System.Text.RegularExpressions;

namespace UnityEngine
{
    public class MonoBehaviour { }

    public static class Debug
    {
        public static void Log(object message) { Console.WriteLine(message); }
    }

    public static class JsonUtility
    {
        public static T FromJson<T>(string json) where T : new()
        {
            var result = new T();
            foreach (var field in typeof(T).GetFields())
                field.SetValue(result, Regex.Match(json, "\"" + field.Name + "\":\"([^\"]*)\"").Groups[1].Value);
            return result;
        }
    }
}

internal static class Program
{
    private static void Main()
    {
        var script = new LevelChooser { token = Environment.GetEnvironmentVariable("TOWNLET_GAME_TOKEN") };
        script.ChooseLevel().GetAwaiter().GetResult();
    }
}
