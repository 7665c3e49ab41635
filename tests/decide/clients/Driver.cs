// Driver of the C# client. test_vectors.py describes input and output.
using System;
using System.Collections.Generic;
using System.IO;
using System.Text;
using System.Threading.Tasks;
using Townlet;

internal static class Driver
{
    private static async Task<string> Send(TownletClient client, string line)
    {
        try { return await client.RequestAsync(line); }
        catch (Exception error) { return "! " + error.Message; }
    }

    private static async Task Run(TextReader input, TextWriter output)
    {
        string url = input.ReadLine(), token = input.ReadLine(), line;
        var timeout = TimeSpan.FromMilliseconds(int.Parse(input.ReadLine()));
        var client = new TownletClient(url, token, timeout: timeout);
        var step = new List<Task<string>>();
        while ((line = input.ReadLine()) != null)
        {
            if (line.Length > 0)
            {
                step.Add(Send(client, line));
                continue;
            }
            foreach (var answer in await Task.WhenAll(step)) output.WriteLine(answer);
            step.Clear();
        }
        client.Dispose();
        output.WriteLine(await Send(client, "{\"type\": \"ping\"}"));
        output.WriteLine("connections " + client.Connections);
    }

    private static void Main()
    {
        var utf8 = new UTF8Encoding(false);
        using (var input = new StreamReader(Console.OpenStandardInput(), utf8))
        using (var output = new StreamWriter(Console.OpenStandardOutput(), utf8))
            Run(input, output).GetAwaiter().GetResult();
    }
}
